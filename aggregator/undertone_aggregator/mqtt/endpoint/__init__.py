"""The server as its devices' own MQTT endpoint: a device's PUBACK means that its report is committed."""
