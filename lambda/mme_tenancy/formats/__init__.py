"""What the files of each framework must look like, checked as streams: no framework is imported and no file is held."""
