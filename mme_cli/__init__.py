"""The ``mme`` command: thin; every command calls one function of the other packages."""
