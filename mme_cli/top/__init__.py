"""What ``mme tenants top`` shows: each tenant's requests, and its share of what the fleet costs."""
