"""MQTT 3.1.1 as the server speaks it, without a socket or a clock: to a broker, and as its devices' own endpoint."""
