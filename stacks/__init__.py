"""The reference stacks: they only wire constructs together, name the outputs and say why a finding is right as it is."""
