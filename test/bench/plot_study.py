#!/usr/bin/env python3
"""Draws the points of codec_study as an SVG: plot_study.py POINTS.csv PLOT.svg"""
import csv
import math
import sys

PANELS = ["transformer/step0005", "transformer/step0400", "convnet/step0005", "convnet/step0300"]
SERIES = [("min-max/512", "#888888", "min-max, bucket 512 (CGX)"), ("min-max/128", "#d08020", "min-max, bucket 128"),
          ("tiles", "#1060c0", "tiles (this codec)")]
WIDTH, HEIGHT, LEFT, TOP, GAP = 380, 260, 60, 50, 70
MOST_BITS, LOWEST, HIGHEST = 9.0, -6.0, 1.0  # axes: wire bits, log10 of NMSE


def x_of(panel, bits):
    return LEFT + panel % 2 * (WIDTH + GAP) + bits / MOST_BITS * WIDTH


def y_of(panel, nmse):
    level = (math.log10(nmse) - LOWEST) / (HIGHEST - LOWEST)
    return TOP + panel // 2 * (HEIGHT + GAP) + (1 - level) * HEIGHT


def text(x, y, words, anchor="middle", size=12):
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-size="{size}">{words}</text>'


def frame(panel, name):
    left, right = x_of(panel, 0), x_of(panel, MOST_BITS)
    top, bottom = y_of(panel, 10 ** HIGHEST), y_of(panel, 10 ** LOWEST)
    out = [f'<rect x="{left:.0f}" y="{top:.0f}" width="{right - left:.0f}" height="{bottom - top:.0f}" fill="none" stroke="black"/>',
           text((left + right) / 2, top - 8, name, size=14), text((left + right) / 2, bottom + 34, "bits on the wire for an element")]
    for bits in range(0, int(MOST_BITS) + 1):
        out.append(text(x_of(panel, bits), bottom + 16, bits, size=11))
    for power in range(int(LOWEST), int(HIGHEST) + 1):
        y = y_of(panel, 10.0 ** power)
        out.append(f'<line x1="{left:.0f}" x2="{right:.0f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        out.append(text(left - 6, y + 4, f"1e{power}", "end", 11))
    return out


def main():
    rows = list(csv.DictReader(open(sys.argv[1])))
    out = []
    for panel, name in enumerate(PANELS):
        out += frame(panel, name)
        for scheme, colour, _ in SERIES:
            points = [(x_of(panel, float(r["wire_bits"])), y_of(panel, float(r["full"])))
                      for r in rows if r["set"] == name and r["scheme"] == scheme]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    for k, (_, colour, words) in enumerate(SERIES):
        out.append(f'<circle cx="{LEFT + 8 + 230 * k}" cy="14" r="5" fill="{colour}"/>')
        out.append(text(LEFT + 20 + 230 * k, 18, words, "start"))
    width, height = LEFT + 2 * WIDTH + GAP + 20, TOP + 2 * HEIGHT + GAP + 50
    with open(sys.argv[2], "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">\n'
                   '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(out) + "\n</svg>\n")


if __name__ == "__main__":
    main()
