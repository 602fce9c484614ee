"""One thin handler a Lambda: event, domain, response."""
