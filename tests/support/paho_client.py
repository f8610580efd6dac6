"""How a test leaves the broker."""

import paho.mqtt.client as mqtt

_CALLBACKS = ("on_connect", "on_disconnect", "on_message", "on_publish", "on_subscribe", "on_unsubscribe")


def leave(client: mqtt.Client) -> None:
    """Disconnect, and let go of the callbacks.

    They often hold what holds the client, and a client in a cycle is freed, and its sockets closed, only when the
    collector comes by: a warning in the middle of another test.
    """
    client.disconnect()
    client.loop_stop()
    for name in _CALLBACKS:
        setattr(client, name, None)
