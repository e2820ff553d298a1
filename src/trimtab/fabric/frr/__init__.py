"""What does the routing software run with? FRR's configuration and daemons, in a folder of their own."""
