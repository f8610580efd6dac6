"""The names in machine and network of five ports of MicroPython 1.28.

They come from extmod, ports/*/modmachine.c and mpconfigport.h. A class that only some of a port's boards have is
listed. The dunder names are left out.
"""

_ALL = (
    "mem8 mem16 mem32 unique_id soft_reset reset reset_cause idle freq lightsleep deepsleep disable_irq enable_irq"
    " bitstream dht_readinto time_pulse_us Signal SoftI2C SoftSPI ADC I2C PWM SPI UART WDT Pin RTC Timer"
    " PWRON_RESET WDT_RESET"
)
# The names that each port has in addition.
_OWN = {
    "esp32": "sleep SLEEP DEEPSLEEP HARD_RESET DEEPSLEEP_RESET SOFT_RESET wake_reason PIN_WAKE EXT0_WAKE EXT1_WAKE"
    " TIMER_WAKE TOUCHPAD_WAKE ULP_WAKE SDCard TouchPad DAC ADCBlock I2S Counter Encoder",
    "esp8266": "sleep DEEPSLEEP HARD_RESET DEEPSLEEP_RESET SOFT_RESET",
    "rp2": "bootloader I2S I2CTarget USBDevice",
    "mimxrt": "bootloader LED SDCard I2S I2CTarget Counter Encoder SOFT_RESET",
    "stm32": "bootloader info rng sleep I2S I2CTarget CAN HARD_RESET DEEPSLEEP_RESET SOFT_RESET",
}
MACHINE = {port: tuple((_ALL + " " + own).split()) for port, own in _OWN.items()}

_IN_ALL = "country hostname ipconfig STA_IF AP_IF"
_IN_ONE = {
    "esp32": "WLAN LAN PPP phy_mode",
    "esp8266": "WLAN phy_mode",
    "rp2": "WLAN route",
    "mimxrt": "LAN route",
    "stm32": "WLAN route",
}
NETWORK = {port: tuple((_IN_ALL + " " + own).split()) for port, own in _IN_ONE.items()}
