"""Frames of real meters and of the standards, and the readings that no damage to them may give.

P1 is the example telegram of the DSMR 4.0 companion standard, with the CRC of these bytes. SML is a recorded answer of
an Iskra meter. IEC 62056-21 has the form of the standard's data readout.
"""

from binascii import unhexlify

TELEGRAM = (
    "/ISk5\\2MT382-1000\r\n\r\n1-3:0.2.8(40)\r\n0-0:1.0.0(101209113020W)\r\n"
    "0-0:96.1.1(4B384547303034303436333935353037)\r\n1-0:1.8.1(123456.789*kWh)\r\n1-0:1.8.2(123456.789*kWh)\r\n"
    "1-0:2.8.1(123456.789*kWh)\r\n1-0:2.8.2(123456.789*kWh)\r\n0-0:96.14.0(0002)\r\n1-0:1.7.0(01.193*kW)\r\n"
    "1-0:2.7.0(00.000*kW)\r\n0-0:17.0.0(016.1*kW)\r\n0-0:96.3.10(1)\r\n0-0:96.7.21(00004)\r\n0-0:96.7.9(00002)\r\n"
    "1-0:99:97.0(2)(0:96.7.19)(101208152415W)(0000000240*s)(101208151004W)(00000000301*s)\r\n1-0:32.32.0(00002)\r\n"
    "1-0:52.32.0(00001)\r\n1-0:72:32.0(00000)\r\n1-0:32.36.0(00000)\r\n1-0:52.36.0(00003)\r\n1-0:72.36.0(00000)\r\n"
    "0-0:96.13.1(3031203631203831)\r\n0-0:96.13.0(" + "303132333435363738393A3B3C3D3E3F" * 5 + ")\r\n"
    "0-1:24.1.0(03)\r\n0-1:96.1.0(3232323241424344313233343536373839)\r\n"
    "0-1:24.2.1(101209110000W)(12785.123*m3)\r\n0-1:24.4.0(1)\r\n!F46A\r\n"
).encode()

SML = unhexlify(
    "1B1B1B1B010101017605006345516200620072630101760101050021171B0B0A0149534B00047A5544726201650021155A620163828E007605"
    "00634552620062007263070177010B0A0149534B00047A5544070100620AFFFF726201650021155A7577070100603201010101010104495"
    "34B0177070100600100FF010101010B0A0149534B00047A55440177070100010800FF650010010401621E52FF65000C1361017707010002"
    "0800FF0101621E52FF62000177070100100700FF0101621B5200530860010101638E71007605006345536200620072630201710163AD550"
    "01B1B1B1B1A00D54B"
)
OBIS_1_8_0 = b"\x01\x00\x01\x08\x00\xff"


def flipped(frame):
    """The frame with one bit changed, for every position."""
    for i in range(len(frame)):
        for bit in range(8):
            damaged = bytearray(frame)
            damaged[i] ^= 1 << bit
            yield bytes(damaged)
