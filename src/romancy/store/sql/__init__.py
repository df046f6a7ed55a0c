"""What the databases have in common: the deciding, with statements by name. Each dialect has its own text for them."""
