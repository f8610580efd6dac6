"""Undertone: time series from many small devices under local differential privacy, over MQTT."""
