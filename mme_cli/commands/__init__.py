"""What the commands do, one module for those that belong together; `mme_cli.main` names them."""
