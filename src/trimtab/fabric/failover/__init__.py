"""Fast failover: failures are noticed and routes rewritten at once; a flapping uplink is held off."""
