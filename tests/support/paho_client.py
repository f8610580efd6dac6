"""How a test ends a client's connection to the broker."""

import paho.mqtt.client as mqtt

_CALLBACKS = ("on_connect", "on_disconnect", "on_message", "on_publish", "on_subscribe", "on_unsubscribe")


def leave(client: mqtt.Client) -> None:
    """Disconnect, and remove the callbacks.

    Callbacks often refer to objects that refer to the client. Such a client is freed, and its sockets are closed, only
    when the garbage collector runs, which causes a warning in the middle of another test.
    """
    client.disconnect()
    client.loop_stop()
    for name in _CALLBACKS:
        setattr(client, name, None)
