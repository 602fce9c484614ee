"""``mme demo``: from an empty machine to checked predictions of three tenants, on the local cloud."""
