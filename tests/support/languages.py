"""Short texts in three languages, and an alphabet that writes them."""

SYMBOLS = ("", *" .abcdefghijklmnopqrstuvxyzwk")
LATIN = """in principio creauit deus celum et terram terra autem erat inanis et uacua et tenebre erant super faciem
abyssi et spiritus dei ferebatur super aquas dixitque deus fiat lux et facta est lux et uidit deus lucem quod esset bona
et diuisit lucem a tenebris appellauitque lucem diem et tenebras noctem factumque est uespere et mane dies unus"""
FRENCH = """li rois artus qui estoit a camaalot tint cort molt riche si com il auoit acostume et quant il orent mengie
si uint leanz une damoisele sus un palefroi blanc et dist au roi sire ie uos salu de par ma dame qui uos mande"""
ENGLISH = """whan that aprill with his shoures soote the droghte of march hath perced to the roote and bathed euery
veyne in swich licour of which vertu engendred is the flour whan zephirus eek with his sweete breeth inspired hath"""
