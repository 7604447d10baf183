// The study behind docs/codec.md: what bucket, tile, scale format and rounding cost and buy on real gradients. Prints
// markdown tables and writes the points of the plot. Quantisers here are parametric, in fp64; the last row of a table
// runs the codec itself.   codec_study GRADIENTS_DIR [POINTS.csv]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "cgx/codec.h"
#include "support/gradient_study.h"

namespace {

using namespace cgx::study;
using cgx::Rounding;

/// How a bucket's step relative to the tile's is written in 7 bits; rounds up. Numbers: values a factor of two.
enum class Scale { Exact, Four, Eight, SixteenThenFour, SixteenThenTwo };

double roundUpTo(double ratio, double valuesPerOctave) {
  const double unit = std::exp2(std::floor(std::log2(ratio))) / valuesPerOctave;
  return std::ceil(ratio / unit) * unit;
}
double writtenRatio(Scale scale, double ratio) {
  const bool near = ratio > std::exp2(-4);
  switch (scale) {
    case Scale::Exact:
      return ratio;
    case Scale::Four:
      return roundUpTo(ratio, 4);  // reaches down to 2^-31
    case Scale::Eight:
      return std::max(roundUpTo(ratio, 8), std::exp2(-15));
    case Scale::SixteenThenFour:
      return std::max(roundUpTo(ratio, near ? 16 : 4), std::exp2(-19));
    case Scale::SixteenThenTwo:
      return roundUpTo(ratio, near ? 16 : 2);  // 2^-35
  }
  return ratio;
}

struct TileShape {
  int bits;
  std::size_t bucket;
  std::size_t tile;
  Scale scale;
  bool symmetric = false;  // no sign bit: levels -(H-1)..H-1
};

void quantiseTile(const TileShape& shape, std::span<float> x, Rounding rounding, std::uint64_t salt,
                  std::size_t index) {
  const double half = 1 << (shape.bits - 1);
  std::vector<double> steps;
  std::vector<bool> flipped;
  double scale = 0;
  for (std::size_t first = 0; first < x.size(); first += shape.bucket) {
    double high = 0;
    double low = 0;
    for (const float v : x.subspan(first, std::min(shape.bucket, x.size() - first))) {
      high = std::max(high, static_cast<double>(v));
      low = std::max(low, -static_cast<double>(v));
    }
    flipped.push_back(low > high);
    const double step =
        std::max(std::max(high, low) / (shape.symmetric ? half - 1 : half), std::min(high, low) / (half - 1));
    steps.push_back(step);
    scale = std::max(scale, step);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t k = i / shape.bucket;
    if (steps[k] == 0) continue;
    const double step = writtenRatio(shape.scale, steps[k] / scale) * scale * (flipped[k] ? -1 : 1);
    x[i] = static_cast<float>(roundTo(x[i] / step, rounding, salt, index + i) * step);
  }
}

Quantiser tiles(const TileShape& shape) {
  return [=](Row& row, Rounding rounding, std::uint64_t salt) {
    double bits = 0;
    for (std::size_t first = 0; first < row.size(); first += shape.tile) {
      const std::span tile = std::span(row).subspan(first, std::min(shape.tile, row.size() - first));
      bits += 8;
      if (std::all_of(tile.begin(), tile.end(), [](float v) { return v == 0; })) continue;
      bits += 32 + static_cast<double>(shape.tile) * shape.bits + 8.0 * static_cast<double>(shape.tile / shape.bucket);
      quantiseTile(shape, tile, rounding, salt, first);
    }
    return bits;
  };
}

struct Scheme {
  std::string name;
  Quantiser quantise;
};

void table(const std::vector<Set>& sets, const std::vector<Scheme>& schemes, Rounding rounding) {
  std::printf("\n%s rounding\n\n| scheme |", rounding == Rounding::Nearest ? "Nearest" : "Stochastic");
  for (const Set& set : sets) std::printf(" %s |", set.name.c_str());
  std::printf(" wire bits | worst layer |\n|---|");
  for (std::size_t i = 0; i < sets.size() + 2; ++i) std::printf("---|");
  std::printf("\n");
  std::vector<Figures> base;
  for (const Scheme& scheme : schemes) {
    std::printf("| %s |", scheme.name.c_str());
    double mostBits = 0;
    double worst = 0;
    for (std::size_t i = 0; i < sets.size(); ++i) {
      const Figures f = measure(sets[i], scheme.quantise, rounding);
      if (base.size() < sets.size()) base.push_back(f);
      std::printf(" %.2e %.2e (%.2f %.2f) |", f.one, f.full, f.one / base[i].one, f.full / base[i].full);
      mostBits = std::max(mostBits, f.wireBits);
      worst = std::max(worst, f.worstLayer);
    }
    std::printf(" %.3f | %.3g |\n", mostBits, worst);
    std::fflush(stdout);
  }
}

/// NMSE of the whole all-reduce against wire bits, one line a point.
void writePoints(const std::vector<Set>& sets, const char* path) {
  std::ofstream file(path);
  file << "set,scheme,bits,wire_bits,one,full\n";
  for (const Set& set : sets) {
    for (int bits = 2; bits <= 8; ++bits) {
      const std::vector<Scheme> schemes = {
          {"min-max/512", minMax(bits, 512)}, {"min-max/128", minMax(bits, 128)}, {"tiles", shipped(bits)}};
      for (const Scheme& scheme : schemes) {
        const Figures f = measure(set, scheme.quantise, Rounding::Stochastic);
        file << set.name << ',' << scheme.name << ',' << bits << ',' << f.wireBits << ',' << f.one << ',' << f.full
             << '\n';
      }
    }
  }
}

std::vector<Scheme> schemes() {
  return {
      {"min-max 4 bit, bucket 512 (CGX)", minMax(4, 512)},
      {"min-max 4 bit, bucket 128", minMax(4, 128)},
      {"bucket 32, tile 512, exact steps", tiles({4, 32, 512, Scale::Exact})},
      {"steps 4 an octave (5+2 bits)", tiles({4, 32, 512, Scale::Four})},
      {"steps 8 an octave (4+3 bits)", tiles({4, 32, 512, Scale::Eight})},
      {"steps 16, below 1/16: 4", tiles({4, 32, 512, Scale::SixteenThenFour})},
      {"**steps 16, below 1/16: 2**", tiles({4, 32, 512, Scale::SixteenThenTwo})},
      {"same, no sign bit", tiles({4, 32, 512, Scale::SixteenThenTwo, true})},
      {"same, bucket 16", tiles({4, 16, 512, Scale::SixteenThenTwo})},
      {"same, bucket 64", tiles({4, 64, 512, Scale::SixteenThenTwo})},
      {"same, tile 256", tiles({4, 32, 256, Scale::SixteenThenTwo})},
      {"same, tile 1024", tiles({4, 32, 1024, Scale::SixteenThenTwo})},
      {"**the codec, 4 bits**", shipped(4)},
  };
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: codec_study GRADIENTS_DIR [POINTS.csv]\n");
    return 2;
  }
  std::vector<Set> sets;
  for (const char* name :
       {"transformer/step0005", "transformer/step0400", "convnet/step0005", "convnet/step0300", "embedding/step0100"}) {
    sets.push_back(loadSet(argv[1], name));
    if (sets.back().ranks.empty()) {
      std::fprintf(stderr, "no %s in %s\n", name, argv[1]);
      return 2;
    }
  }
  for (const Rounding rounding : {Rounding::Nearest, Rounding::Stochastic}) table(sets, schemes(), rounding);
  if (argc > 2) writePoints(sets, argv[2]);
  return 0;
}
