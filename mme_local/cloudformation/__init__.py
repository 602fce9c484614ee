"""CloudFormation resource types that the emulator lacks."""
