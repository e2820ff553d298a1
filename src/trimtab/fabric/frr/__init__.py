"""FRR's configuration and daemons, in a folder of their own."""
