"""How can anyone try it and break it? Hosts and switches on one machine, faults, and probes of outages."""
