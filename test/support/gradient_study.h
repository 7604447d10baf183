// How far a quantiser moves the sum of real gradients, and the baseline to compare with: CGX's min-max buckets. For the
// study behind docs/codec.md and for the test that holds the codec to its figures.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cgx/codec.h"

namespace cgx::study {

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

inline Row loadNpy(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto end = static_cast<std::size_t>(file ? static_cast<std::streamoff>(file.tellg()) : 0);
  constexpr std::size_t kHeader = 128;
  Row row(end > kHeader ? (end - kHeader) / 4 : 0);
  file.seekg(kHeader);
  file.read(reinterpret_cast<char*>(row.data()), static_cast<std::streamsize>(row.size() * 4));
  return row;
}

inline Set loadSet(const std::string& root, const std::string& name) {
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
inline double uniform(std::uint64_t salt, std::size_t i) {
  std::uint64_t z = salt * 0x9E3779B97F4A7C15U + i * 0xD1342543DE82EF95U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return (static_cast<double>((z ^ (z >> 31)) >> 40) + 0.5) / static_cast<double>(1 << 24);
}
inline double roundTo(double x, Rounding rounding, std::uint64_t salt, std::size_t i) {
  return rounding == Rounding::Nearest ? std::nearbyint(x) : std::floor(x + uniform(salt, i));
}

/// CGX: per bucket, `2^bits - 1` equal steps from minimum to maximum, two fp32 a bucket.
inline Quantiser minMax(int bits, std::size_t bucket) {
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

/// The codec as it ships.
inline Quantiser shipped(int bits) {
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

inline double ratioOfSquares(const std::vector<double>& error, const std::vector<double>& reference, std::size_t from,
                             std::size_t count) {
  double e = 0;
  double r = 0;
  for (std::size_t i = from; i < from + count; ++i) {
    e += error[i] * error[i];
    r += reference[i] * reference[i];
  }
  return r > 0 ? e / r : 0;
}

inline Figures measure(const Set& set, const Quantiser& quantise, Rounding rounding) {
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

}  // namespace cgx::study
