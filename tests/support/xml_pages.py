"""ALTO and PAGE files as different programs write them, with page images to go with them."""

import re
import struct
import zlib
from pathlib import Path

from PIL import Image, ImageDraw

SIZE = (400, 300)
BOXES = [(20, 30, 380, 70), (20, 110, 380, 150), (20, 190, 380, 230)]
"""Left, top, right, bottom of the three lines, inked with 10, 60 and 110 on paper of 220."""


def draw_page(path: Path, size: tuple[int, int] = SIZE, scale: float = 1.0) -> Path:
    """A page of three lines, each with strokes of its own grey value."""
    image = Image.new("L", size, 220)
    pen = ImageDraw.Draw(image)
    for place, (left, top, right, bottom) in enumerate(BOXES):
        for x in range(left + 10, right - 10, 40):
            pen.rectangle([x * scale, (top + 10) * scale, (x + 4) * scale, (bottom - 10) * scale], fill=10 + 50 * place)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    return path


def pixel_bomb(path: Path, side: int = 20_000) -> Path:
    """A black-and-white PNG of `side` x `side` pixels in a few kilobytes, made without holding its pixels."""
    squeeze = zlib.compressobj()
    row = bytes(1 + -(-side // 8))
    pixels = b"".join([*(squeeze.compress(row) for _ in range(side)), squeeze.flush()])
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    ]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    return path


def corners(place: int, separator: str = ",", between: str = " ", factor: float = 1.0) -> str:
    """The outline of a line as points."""
    left, top, right, bottom = BOXES[place]
    points = [(left, top), (right, top), (right, bottom), (left, bottom)]
    return between.join(f"{x * factor:g}{separator}{y * factor:g}" for x, y in points)


def box(place: int, factor: float = 1.0) -> str:
    """The box of a line as ALTO attributes."""
    left, top, right, bottom = (value * factor for value in BOXES[place])
    return f'HPOS="{left:g}" VPOS="{top:g}" WIDTH="{right - left:g}" HEIGHT="{bottom - top:g}"'


ALTO_2 = f"""<?xml version="1.0" encoding="UTF-8"?>
<?xml-stylesheet type="text/xsl" href="view.xsl"?>
<!-- exported by a scanner -->
<alto xmlns="http://www.loc.gov/standards/alto/ns-v2#" xmlns:xlink="http://www.w3.org/1999/xlink">
  <Description>
    <MeasurementUnit>mm10</MeasurementUnit>
    <sourceImageInformation><fileName>page.png</fileName></sourceImageInformation>
    <OCRProcessing ID="OCR0"><ocrProcessingStep><processingSoftware><softwareName>Old</softwareName></processingSoftware>
    </ocrProcessingStep></OCRProcessing>
  </Description>
  <Styles><TextStyle ID="TXT_0" FONTSIZE="10"/></Styles>
  <Layout><Page ID="P1" PHYSICAL_IMG_NR="1" WIDTH="800" HEIGHT="600"><PrintSpace>
    <TextBlock ID="B1" STYLEREFS="TXT_0" xlink:type="simple">
      <TextLine ID="L1" {box(0, 2)}><String ID="S1" CONTENT="πρώτη" WC="0.5" CC="0 1 2 3 4" {box(0, 2)}/><SP ID="SP1"/><!-- a
        comment inside --><String ID="S2" CONTENT="γραμ" SUBS_TYPE="HypPart1" SUBS_CONTENT="γραμμή"/><HYP CONTENT="-"/></TextLine>
      <TextLine ID="L2" {box(1, 2)}><String ID="S3" CONTENT="μή" SUBS_TYPE="HypPart2" SUBS_CONTENT="γραμμή"/></TextLine>
      <TextLine ID="L3" {box(2, 2)}/>
    </TextBlock>
  </PrintSpace></Page></Layout>
</alto>
"""  # noqa: E501

ALTO_3 = f"""<?xml version='1.0' encoding='UTF-8' standalone='yes'?>
<!DOCTYPE alto>
<a:alto xmlns:a="http://www.loc.gov/standards/alto/ns-v3#">
  <a:Description><a:MeasurementUnit>pixel</a:MeasurementUnit>
    <a:sourceImageInformation><a:fileName>C:\\scans\\page.png</a:fileName></a:sourceImageInformation></a:Description>
  <a:Layout><a:Page ID="p" WIDTH="400" HEIGHT="300"><a:PrintSpace><a:ComposedBlock ID="c"><a:TextBlock ID="b">
    <a:TextLine ID="x1" {box(0)}><a:String CONTENT="one two"><a:ALTERNATIVE>ore two</a:ALTERNATIVE></a:String></a:TextLine>
    <a:TextLine ID="x2" {box(1)}><a:Shape><a:Polygon POINTS="{corners(1, ",", ",")}"/></a:Shape>
      <a:String CONTENT="three"/><a:String CONTENT="four"/></a:TextLine>
    <a:TextLine ID="x3" {box(2)} BASELINE="220"><a:String CONTENT=""/></a:TextLine>
  </a:TextBlock></a:ComposedBlock></a:PrintSpace></a:Page></a:Layout>
</a:alto>
"""  # noqa: E501

ALTO_4 = f"""<?xml version="1.0" encoding="UTF-8"?>
<alto xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns="http://www.loc.gov/standards/alto/ns-v4#"
      xsi:schemaLocation="http://www.loc.gov/standards/alto/ns-v4# http://www.loc.gov/standards/alto/v4/alto-4-2.xsd">
  <Description>
    <MeasurementUnit>pixel</MeasurementUnit>
    <sourceImageInformation><fileName>page.png</fileName><fileIdentifier>iiif/1</fileIdentifier></sourceImageInformation>
  </Description>
  <Tags><OtherTag ID="BT1" LABEL="MainZone" DESCRIPTION="block type"/></Tags>
  <ReadingOrder><OrderedGroup ID="ro"><ElementRef ID="e2" REF="eSc_2"/><ElementRef ID="e1" REF="eSc_1"/></OrderedGroup>
  </ReadingOrder>
  <Layout>
    <Page WIDTH="400" HEIGHT="300" PHYSICAL_IMG_NR="0" ID="eSc_dummypage_">
      <PrintSpace HPOS="0" VPOS="0" WIDTH="400" HEIGHT="300">
        <TextBlock ID="eSc_b1" TAGREFS="BT1">
          <TextLine ID="eSc_1" BASELINE="20 60 380 60" {box(0)}><Shape><Polygon POINTS="{corners(0, " ")}"/></Shape>
            <String CONTENT="a saint denis" {box(0)}></String>
          </TextLine>
          <TextLine ID="eSc_2" BASELINE="20,140 380,140" {box(1)}>
            <Shape><Polygon POINTS="{corners(1)}"/></Shape>
            <String ID="s1" CONTENT="en" WC="0.9"><Glyph ID="g1" CONTENT="e" GC="0.9"/><Glyph ID="g2" CONTENT="n"/></String>
            <SP ID="sp"/>
            <String ID="s2" CONTENT="france" WC="0.8"/>
          </TextLine>
          <TextLine ID="eSc_3" BASELINE="20,220 380,220"/>
        </TextBlock>
      </PrintSpace>
    </Page>
  </Layout>
</alto>
"""  # noqa: E501

PAGE_2013 = f"""<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2013-07-15"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="a b">
  <Metadata>
    <Creator>prov=Somebody:name=Model(htr_id=1)</Creator>
    <Created>2020-09-13T11:47:58.199+07:00</Created>
    <LastChange>2021-09-23T12:35:22.487+02:00</LastChange>
    <TranskribusMetadata docId="1" pageId="2" status="GT"/>
  </Metadata>
  <Page imageFilename="page.png" imageWidth="400" imageHeight="300">
    <ReadingOrder><OrderedGroup id="ro_1" caption="Regions reading order">
      <RegionRefIndexed index="1" regionRef="r1"/><RegionRefIndexed index="0" regionRef="r2"/></OrderedGroup></ReadingOrder>
    <TextRegion type="paragraph" id="r1" custom="readingOrder {{index:1;}}">
      <Coords points="0,0 400,0 400,160 0,160"/>
      <TextLine id="r1l2" custom="readingOrder {{index:1;}} textStyle {{offset:0; length:3;}}">
        <Coords points="{corners(1)}"/><Baseline points="20,140 380,140"/>
        <TextEquiv conf="0.7"><Unicode>second line</Unicode></TextEquiv>
      </TextLine>
      <TextLine id="r1l1" custom="readingOrder {{index:0;}}">
        <Coords points="{corners(0)}"/><Baseline points="20,60 380,60"/>
        <Word id="w1"><Coords points="20,30 200,30 200,70 20,70"/><TextEquiv conf="0.5"><Unicode>first</Unicode></TextEquiv></Word>
        <Word id="w2"><Coords points="200,30 380,30 380,70 200,70"/><TextEquiv><Unicode>line</Unicode></TextEquiv></Word>
        <TextEquiv><Unicode>first line</Unicode></TextEquiv>
        <TextStyle fontSize="12"/>
      </TextLine>
      <TextEquiv><Unicode>second line
first line</Unicode></TextEquiv>
    </TextRegion>
    <TextRegion id="r2"><Coords points="0,180 400,180 400,240 0,240"/>
      <TextLine id="r2l1"><Coords points="{corners(2)}"/><Baseline points="20,220 380,220"/></TextLine>
    </TextRegion>
  </Page>
</PcGts>
"""  # noqa: E501

PAGE_2019 = f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- before the root -->
<pc:PcGts xmlns:pc="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15" pcGtsId="x">
  <pc:Metadata><pc:Creator>OCR-D</pc:Creator><pc:Created>2020-01-01T00:00:00</pc:Created>
    <pc:LastChange>2020-01-01T00:00:00</pc:LastChange>
    <pc:MetadataItem type="processingStep" name="layout" value="segmenter"/></pc:Metadata>
  <pc:Page imageFilename="file:///somewhere/page.png" imageWidth="400" imageHeight="300">
    <pc:AlternativeImage filename="page.bin.png" comments="binarized"/>
    <pc:TextRegion id="r0"><pc:Coords points="0,0 400,0 400,300 0,300"/>
      <pc:TextLine id="l1" index="2"><pc:Coords points="{corners(0)}"/>
        <pc:TextEquiv index="1" conf="0.1"><pc:Unicode>worse</pc:Unicode></pc:TextEquiv>
        <pc:TextEquiv index="0" conf="0.9"><pc:PlainText>better</pc:PlainText><pc:Unicode>bëtter</pc:Unicode></pc:TextEquiv>
      </pc:TextLine>
      <pc:TextLine id="l2" index="1"><pc:Coords points="{corners(1)}"/>
        <pc:Word id="w"><pc:Coords points="{corners(1)}"/>
          <pc:Glyph id="g1"><pc:Coords points="{corners(1)}"/><pc:TextEquiv><pc:Unicode>a</pc:Unicode></pc:TextEquiv></pc:Glyph>
          <pc:Glyph id="g2"><pc:Coords points="{corners(1)}"/><pc:TextEquiv><pc:Unicode>b</pc:Unicode></pc:TextEquiv></pc:Glyph>
        </pc:Word>
      </pc:TextLine>
      <pc:TextLine id="l3" index="3"><pc:Coords points="{corners(2)}"/><pc:TextEquiv><pc:Unicode/></pc:TextEquiv></pc:TextLine>
    </pc:TextRegion>
  </pc:Page>
</pc:PcGts>
"""  # noqa: E501

EXAMPLES: dict[str, tuple[str, list[str | None]]] = {
    "alto2": (ALTO_2, ["πρώτη γραμ-", "μή", None]),
    "alto3": (ALTO_3, ["one two", "three four", ""]),
    "alto4": (ALTO_4, ["en france", "a saint denis", None]),
    "page2013": (PAGE_2013, [None, "first line", "second line"]),
    "page2019": (PAGE_2019, ["ab", "bëtter", ""]),
}
"""File by name, with the texts of its lines in reading order."""


def write_transkribus(folder: Path) -> Path:
    """A folder as Transkribus exports it: images, and PAGE files in `page`; the second page has no lines."""
    for stem in ("p1", "p2"):
        file = write_example(folder / "page", "page2013", stem)
        (folder / "page" / f"{stem}.png").rename(folder / f"{stem}.png")
    file.write_text(re.sub(r"<TextRegion.*</TextRegion>", "", PAGE_2013, flags=re.DOTALL), encoding="utf-8")
    return folder


def write_example(folder: Path, name: str, stem: str = "page") -> Path:
    """An example with its page image, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    draw_page(folder / f"{stem}.png")
    path = folder / f"{stem}.xml"
    path.write_text(EXAMPLES[name][0].replace("page.png", f"{stem}.png"), encoding="utf-8")
    return path
