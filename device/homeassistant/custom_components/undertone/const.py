"""Names that several modules of the integration use."""

DOMAIN = "undertone"
# Fields of a config entry's data.
DEVICE, ENTITY, FOLDER, LINK, OFFER = "device", "entity", "folder", "link", "offer"
# Name of the signal that the status of a participation has changed, formatted with the entry's id.
SIGNAL = "undertone_status_{}"
