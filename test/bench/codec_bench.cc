// Speed of the codec on one core, next to what bounds it in the same run: memcpy and a read-only sweep. Bytes per
// second are of elements (fp32: 4 bytes, fp16 and bf16: 2), not of codes; items are elements. Every SIMD target of this
// CPU; --benchmark_filter=avx512 for one.
#include <benchmark/benchmark.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cgx/codec.h"

namespace cgx::codec {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = kKiB * kKiB;

/// Page-aligned memory that is in use, so that neither page faults nor shared zero pages are measured.
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096))) {
    std::memset(data_.get(), 1, bytes);
  }
  std::byte* data() const { return data_.get(); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

/// Normal numbers whose size changes from bucket to bucket, as gradients' does.
void fill(DType dtype, std::size_t count, std::byte* to) {
  std::minstd_rand random(1);
  std::normal_distribution<float> normal;
  std::vector<float> period(64 * kTile);
  for (std::size_t i = 0; i < period.size(); ++i)
    period[i] = normal(random) * static_cast<float>(1 + i / kBucket % 7) * 0.01F;
  for (std::size_t i = 0; i < count; ++i) {
    const float value = period[i % period.size()];
    if (dtype == DType::F32) {
      reinterpret_cast<float*>(to)[i] = value;
    } else {
      const auto bits = std::bit_cast<std::uint32_t>(value);
      const std::uint32_t half =
          dtype == DType::BF16 ? bits >> 16 : (bits >> 16 & 0x8000) | ((bits & 0x7FFFFFFF) - (112U << 23)) >> 13;
      reinterpret_cast<std::uint16_t*>(to)[i] = static_cast<std::uint16_t>(half);
    }
  }
}

void count(benchmark::State& state, std::size_t bytes, std::size_t elements) {
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
  state.SetItemsProcessed(static_cast<std::int64_t>(elements) * state.iterations());
}

void copy(benchmark::State& state, std::size_t bytes) {
  const Memory from(bytes);
  const Memory to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  count(state, bytes, bytes / 4);
}

/// As fast as one core can read: four independent sums.
void sweep(benchmark::State& state, std::size_t bytes) {
  const Memory from(bytes);
  const auto* words = from.as<std::uint64_t>();
  for (auto _ : state) {
    std::uint64_t sums[8] = {};
    for (std::size_t i = 0; i < bytes / 8; i += 8) {
      for (std::size_t j = 0; j < 8; ++j) sums[j] |= words[i + j];
    }
    benchmark::DoNotOptimize(sums);
  }
  count(state, bytes, bytes / 4);
}

struct Case {
  const Kernels* kernels;
  DType dtype;
  int bits;
  Rounding rounding;
  std::size_t bytes;
  bool clears = false;
  std::size_t elements() const { return bytes / bytesOf(dtype); }
  EncodeSpec spec() const { return {bits, rounding, {0x9E3779B97F4A7C15U, 0}}; }
};

/// An encoded message of the case's size.
struct Message {
  Memory out;
  Encoded encoded;
  explicit Message(const Case& c) : out(payloadCapacity(c.dtype, c.elements())) {
    const Memory in(c.bytes);
    fill(c.dtype, c.elements(), in.data());
    encoded = c.kernels->encode(c.spec(), c.dtype, in.data(), c.elements(), out.data());
  }
  Payload payload() const { return {encoded.form, {out.data(), encoded.bytes}}; }
};

void encode(benchmark::State& state, const Case& c) {
  const Memory in(c.bytes);
  fill(c.dtype, c.elements(), in.data());
  const Memory out(payloadCapacity(c.dtype, c.elements()));
  // Clearing for real would leave nothing to encode, so another buffer is cleared: the same traffic.
  const Memory other(c.clears ? c.bytes : 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(c.kernels->encode(c.spec(), c.dtype, in.data(), c.elements(), out.data()));
    if (c.clears) c.kernels->clear(other.data(), c.bytes);
    benchmark::ClobberMemory();
  }
  count(state, c.bytes, c.elements());
}

void decode(benchmark::State& state, const Case& c) {
  const Message message(c);
  const Memory out(c.bytes);
  for (auto _ : state) {
    c.kernels->decode(message.payload(), c.dtype, c.elements(), out.data());
    benchmark::ClobberMemory();
  }
  count(state, c.bytes, c.elements());
}

void decodeAdd(benchmark::State& state, const Case& c) {
  const Message message(c);
  const Memory sum(c.elements() * sizeof(float));
  std::memset(sum.data(), 0, c.elements() * sizeof(float));
  for (auto _ : state) {
    c.kernels->decodeAdd(message.payload(), c.dtype, c.elements(), sum.as<float>());
    benchmark::ClobberMemory();
  }
  count(state, c.elements() * sizeof(float), c.elements());
}

/// `others` codes and this rank's exact elements; bytes are those of one part.
void reduce(benchmark::State& state, const Case& c, std::size_t others, bool fused) {
  const Message message(c);
  std::vector<Memory> copies;
  std::vector<Contribution> parts;
  for (std::size_t k = 0; k < others; ++k) {
    std::memcpy(copies.emplace_back(message.encoded.bytes).data(), message.out.data(), message.encoded.bytes);
    parts.push_back({nullptr, {message.encoded.form, {copies.back().data(), message.encoded.bytes}}});
  }
  const Memory exact(c.bytes);
  fill(c.dtype, c.elements(), exact.data());
  parts.push_back({exact.data(), {}});
  const Memory own(c.bytes);
  const Memory out(payloadCapacity(c.dtype, c.elements()));
  for (auto _ : state) {
    if (fused) {
      benchmark::DoNotOptimize(c.kernels->reduce(c.spec(), c.dtype, parts, c.elements(), out.data(), own.data()));
    } else {
      std::memcpy(own.data(), exact.data(), c.bytes);
      for (std::size_t k = 0; k < others; ++k)
        c.kernels->decodeAdd(parts[k].payload, c.dtype, c.elements(), own.as<float>());
      const Encoded e = c.kernels->encode(c.spec(), c.dtype, own.data(), c.elements(), out.data());
      c.kernels->decode({e.form, {out.data(), e.bytes}}, c.dtype, c.elements(), own.data());
    }
    benchmark::ClobberMemory();
  }
  count(state, c.bytes, c.elements());
}

std::string sizeName(std::size_t bytes) {
  return bytes >= kMiB ? std::to_string(bytes / kMiB) + "MiB" : std::to_string(bytes / kKiB) + "KiB";
}
std::string nameOf(const char* what, const Case& c) {
  static constexpr const char* kDTypes[] = {"f32", "f16", "bf16"};
  return std::string(what) + "/" + c.kernels->name + "/" + kDTypes[static_cast<int>(c.dtype)] + "/" +
         std::to_string(c.bits) + "bit/" + (c.rounding == Rounding::Nearest ? "nearest/" : "stochastic/") +
         sizeName(c.bytes);
}

/// All sizes and roundings at 4 bits, then what differs from that in one thing.
void registerTarget(const Kernels* kernels) {
  const auto add = [](const char* what, const Case& c, auto run) {
    benchmark::RegisterBenchmark(nameOf(what, c).c_str(), run, c);
  };
  const Case usual{kernels, DType::F32, 4, Rounding::Nearest, kMiB};
  for (const std::size_t bytes : {256 * kKiB, kMiB, 4 * kMiB, 256 * kMiB}) {
    Case c = usual;
    c.bytes = bytes;
    add("encode", c, encode);
    c.clears = true;
    add("encode+clear", c, encode);
    c.clears = false;
    add("decode", c, decode);
    add("decodeAdd", c, decodeAdd);
    c.rounding = Rounding::Stochastic;
    add("encode", c, encode);
  }
  for (const DType dtype : {DType::F16, DType::BF16}) {
    for (const Rounding rounding : {Rounding::Nearest, Rounding::Stochastic})
      add("encode", {kernels, dtype, 4, rounding, kMiB / 2}, encode);
    add("decode", {kernels, dtype, 4, Rounding::Nearest, kMiB / 2}, decode);
  }
  for (const int bits : {1, 2, 3, 5, 6, 7, 8}) {
    add("encode", {kernels, DType::F32, bits, Rounding::Nearest, kMiB}, encode);
    add("encode", {kernels, DType::F32, bits, Rounding::Stochastic, kMiB}, encode);
    add("decodeAdd", {kernels, DType::F32, bits, Rounding::Nearest, kMiB}, decodeAdd);
  }
  for (const std::size_t others : {3, 7}) {
    for (const bool fused : {true, false}) {
      const std::string what = (fused ? "reduce" : "reduceInParts") + std::to_string(others);
      benchmark::RegisterBenchmark(nameOf(what.c_str(), usual).c_str(), reduce, usual, others, fused);
    }
  }
}

}  // namespace
}  // namespace cgx::codec

int main(int argc, char** argv) {
  using namespace cgx::codec;
  for (const std::size_t bytes : {kMiB, 256 * kMiB}) {
    benchmark::RegisterBenchmark(("memcpy/" + sizeName(bytes)).c_str(), copy, bytes);
    benchmark::RegisterBenchmark(("sweep/" + sizeName(bytes)).c_str(), sweep, bytes);
  }
  for (const Kernels* kernels : targets()) registerTarget(kernels);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
