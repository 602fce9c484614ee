"""The platform's policies as policies of a simulated fleet: what decides in Lambda decides there."""
