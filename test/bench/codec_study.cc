// The study behind docs/codec.md: what bucket, tile, scale format and rounding cost and buy on real gradients. Prints
// markdown tables and draws one SVG. Quantisers here are parametric doubles; the last rows run the codec itself.
//   codec_study GRADIENTS_DIR [PLOT.svg]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cgx/codec.h"

namespace {

using cgx::Rounding;
using Row = std::vector<float>;

// ---- Gradients
// ------------------------------------------------------------------------------------------------------------------

struct Layer {
  std::size_t offset;
  std::size_t count;
};
struct Set {
  std::string name;
  std::vector<Row> ranks;
  std::vector<Layer> layers;
};

Row loadNpy(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto end = static_cast<std::size_t>(file ? static_cast<std::streamoff>(file.tellg()) : 0);
  constexpr std::size_t kHeader = 128;
  Row row(end > kHeader ? (end - kHeader) / 4 : 0);
  file.seekg(kHeader);
  file.read(reinterpret_cast<char*>(row.data()), static_cast<std::streamsize>(row.size() * 4));
  return row;
}

Set loadSet(const std::string& root, const std::string& name) {
  Set set{name, {}, {}};
  for (int rank = 0;; ++rank) {
    Row row = loadNpy(root + "/" + name + "/rank" + std::to_string(rank) + ".npy");
    if (row.empty()) break;
    set.ranks.push_back(std::move(row));
  }
  std::ifstream file(root + "/" + name + "/layers.json");
  if (!file) return set;
  const nlohmann::json layers = nlohmann::json::parse(file);
  for (const auto& layer : layers.is_array() ? layers : layers.at("layers")) {
    set.layers.push_back({layer.at("offset").get<std::size_t>(), layer.at("numel").get<std::size_t>()});
  }
  return set;
}

// ---- Quantisers
// -----------------------------------------------------------------------------------------------------------------

/// Quantises a buffer in place and returns the bits it would take on the wire. `salt` picks the noise.
using Quantiser = std::function<double(Row& row, Rounding rounding, std::uint64_t salt)>;

/// Uniform in (0, 1), good enough for a study.
double uniform(std::uint64_t salt, std::size_t i) {
  std::uint64_t z = salt * 0x9E3779B97F4A7C15U + i * 0xD1342543DE82EF95U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return (static_cast<double>((z ^ (z >> 31)) >> 40) + 0.5) / static_cast<double>(1 << 24);
}
double roundTo(double x, Rounding rounding, std::uint64_t salt, std::size_t i) {
  return rounding == Rounding::Nearest ? std::nearbyint(x) : std::floor(x + uniform(salt, i));
}

/// CGX: per bucket, `2^bits - 1` equal steps from minimum to maximum, two fp32 a bucket.
Quantiser minMax(int bits, std::size_t bucket) {
  return [=](Row& row, Rounding rounding, std::uint64_t salt) {
    const double top = (1 << bits) - 1;
    for (std::size_t first = 0; first < row.size(); first += bucket) {
      const std::size_t end = std::min(row.size(), first + bucket);
      const auto [low, high] = std::minmax_element(row.begin() + static_cast<std::ptrdiff_t>(first),
                                                   row.begin() + static_cast<std::ptrdiff_t>(end));
      const double minimum = *low;
      const double step = (static_cast<double>(*high) - minimum) / top;
      if (step == 0) continue;
      for (std::size_t i = first; i < end; ++i) {
        const double level = std::clamp(roundTo((row[i] - minimum) / step, rounding, salt, i), 0.0, top);
        row[i] = static_cast<float>(minimum + level * step);
      }
    }
    return static_cast<double>(row.size()) * bits +
           std::ceil(static_cast<double>(row.size()) / static_cast<double>(bucket)) * 64;
  };
}

/// How a bucket's step relative to the tile's is written in 7 bits; rounds up.
enum class Scale { Exact, Mantissa2, Mantissa3, Mantissa4, Split3Then1, Split4Then2 };

double roundUpTo(double ratio, double mantissaSteps) {
  const double unit = std::exp2(std::floor(std::log2(ratio))) / mantissaSteps;
  return std::ceil(ratio / unit) * unit;
}
double writtenRatio(Scale scale, double ratio) {
  switch (scale) {
    case Scale::Exact:
      return ratio;
    case Scale::Mantissa2:
      return roundUpTo(ratio, 4);
    case Scale::Mantissa3:
      return std::max(roundUpTo(ratio, 8), std::exp2(-15));
    case Scale::Mantissa4:
      return std::max(roundUpTo(ratio, 16), std::exp2(-7));
    case Scale::Split3Then1:
      return roundUpTo(ratio, ratio >= std::exp2(-8) ? 8 : 2);
    case Scale::Split4Then2:
      return roundUpTo(ratio, ratio >= std::exp2(-4) ? 16 : 4);
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

/// The codec as it ships.
Quantiser shipped(int bits) {
  return [=](Row& row, Rounding rounding, std::uint64_t salt) {
    const cgx::codec::Kernels& kernels = *cgx::codec::targets().front();
    std::vector<std::byte> room(cgx::codec::payloadCapacity(cgx::codec::DType::F32, row.size()) + 64);
    auto* out = room.data() + (64 - reinterpret_cast<std::uintptr_t>(room.data()) % 64);
    const cgx::codec::EncodeSpec spec{bits, rounding, {cgx::codec::noiseKey(0, 0, salt, 0, 0), 0}};
    const auto encoded = kernels.encode(spec, cgx::codec::DType::F32, row.data(), row.size(), out);
    kernels.decode({encoded.form, {out, encoded.bytes}}, cgx::codec::DType::F32, row.size(), row.data());
    return 8.0 * static_cast<double>(encoded.bytes);
  };
}

// ---- Measures
// -------------------------------------------------------------------------------------------------------------------

struct Figures {
  double wireBits = 0;    // an element of a contribution
  double one = 0;         // NMSE of the average after one quantisation of every contribution
  double full = 0;        // NMSE of the all-reduce's result
  double worstLayer = 0;  // largest NMSE of a layer, one quantisation
};

double ratioOfSquares(const std::vector<double>& error, const std::vector<double>& reference, std::size_t from,
                      std::size_t count) {
  double e = 0;
  double r = 0;
  for (std::size_t i = from; i < from + count; ++i) {
    e += error[i] * error[i];
    r += reference[i] * reference[i];
  }
  return r > 0 ? e / r : 0;
}

Figures measure(const Set& set, const Quantiser& quantise, Rounding rounding) {
  const std::size_t n = set.ranks[0].size();
  const std::size_t ranks = set.ranks.size();
  const std::size_t piece = (n / ranks + 2047) / 2048 * 2048;  // owner of element i: i / piece
  std::vector<double> exact(n);
  std::vector<double> one(n);
  std::vector<double> partSum(n);
  Figures f;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    Row coded = set.ranks[rank];
    f.wireBits += quantise(coded, rounding, rank + 1) / static_cast<double>(n * ranks);
    for (std::size_t i = 0; i < n; ++i) {
      const double x = set.ranks[rank][i];
      exact[i] += x;
      one[i] += coded[i] - x;
      partSum[i] += std::min(i / piece, ranks - 1) == rank ? x : coded[i];
    }
  }
  Row sum(n);
  std::transform(partSum.begin(), partSum.end(), sum.begin(), [](double v) { return static_cast<float>(v); });
  quantise(sum, rounding, 100);
  std::vector<double> full(n);
  for (std::size_t i = 0; i < n; ++i) full[i] = sum[i] - exact[i];
  f.one = ratioOfSquares(one, exact, 0, n);
  f.full = ratioOfSquares(full, exact, 0, n);
  for (const Layer& layer : set.layers)
    f.worstLayer = std::max(f.worstLayer, ratioOfSquares(one, exact, layer.offset, layer.count));
  return f;
}

struct Scheme {
  std::string name;
  Quantiser quantise;
};

void table(const std::vector<Set>& sets, const std::vector<Scheme>& schemes, Rounding rounding) {
  std::printf("\n%s rounding\n\n| scheme |", rounding == Rounding::Nearest ? "Nearest" : "Stochastic");
  for (const Set& set : sets) std::printf(" %s: wire bits, one, full, worst layer |", set.name.c_str());
  std::printf("\n|---|");
  for (std::size_t i = 0; i < sets.size(); ++i) std::printf("---|");
  std::printf("\n");
  std::vector<Figures> base;
  for (const Scheme& scheme : schemes) {
    std::printf("| %s |", scheme.name.c_str());
    for (std::size_t i = 0; i < sets.size(); ++i) {
      const Figures f = measure(sets[i], scheme.quantise, rounding);
      if (base.size() < sets.size()) base.push_back(f);
      std::printf(" %.2f, %.2e (%.2fx), %.2e (%.2fx), %.3g |", f.wireBits, f.one, f.one / base[i].one, f.full,
                  f.full / base[i].full, f.worstLayer);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: codec_study GRADIENTS_DIR [PLOT.svg]\n"), 2;
  std::vector<Set> sets;
  for (const char* name :
       {"transformer/step0005", "transformer/step0400", "convnet/step0005", "convnet/step0300", "embedding/step0100"}) {
    sets.push_back(loadSet(argv[1], name));
    if (sets.back().ranks.empty()) return std::fprintf(stderr, "no %s in %s\n", name, argv[1]), 2;
  }
  const std::vector<Scheme> schemes = {
      {"min-max 4, bucket 512 (CGX)", minMax(4, 512)},
      {"4 bit 32/512 exact steps", tiles({4, 32, 512, Scale::Exact})},
      {"4 bit 32/512 5+2", tiles({4, 32, 512, Scale::Mantissa2})},
      {"4 bit 32/512 4+3", tiles({4, 32, 512, Scale::Mantissa3})},
      {"4 bit 32/512 3+4", tiles({4, 32, 512, Scale::Mantissa4})},
      {"4 bit 32/512 3 then 1", tiles({4, 32, 512, Scale::Split3Then1})},
      {"4 bit 32/512 4 then 2", tiles({4, 32, 512, Scale::Split4Then2})},
      {"4 bit 32/512 symmetric", tiles({4, 32, 512, Scale::Mantissa3, true})},
      {"4 bit 64/512 4+3", tiles({4, 64, 512, Scale::Mantissa3})},
      {"4 bit 32/1024 4+3", tiles({4, 32, 1024, Scale::Mantissa3})},
      {"4 bit 32/256 4+3", tiles({4, 32, 256, Scale::Mantissa3})},
      {"4 bit 16/512 4+3", tiles({4, 16, 512, Scale::Mantissa3})},
      {"shipped 4", shipped(4)},
  };
  for (const Rounding rounding : {Rounding::Nearest, Rounding::Stochastic}) table(sets, schemes, rounding);
  return 0;
}
