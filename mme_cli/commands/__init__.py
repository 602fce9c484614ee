"""The commands that call the onboarding API, one module a resource."""
