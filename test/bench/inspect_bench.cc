// What sampling the error adds to coding: blocks of 64 Ki elements over memory that fits no cache, as a worker codes
// and clears them.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <random>
#include <vector>

#include "collective/inspect.h"

namespace cgx::collective {
namespace {

constexpr std::size_t kBlock = 65536;
constexpr std::size_t kBlocks = 64;

struct Memory {
  std::vector<float> values = std::vector<float>(kBlock * kBlocks);
  std::vector<float> cleared = std::vector<float>(kBlock * kBlocks);
  std::byte* payload =
      static_cast<std::byte*>(std::aligned_alloc(64, codec::payloadCapacity(codec::DType::F32, kBlock)));
  Memory() {
    std::minstd_rand random(1);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = normal(random) * static_cast<float>(1 + i / 32 % 7);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { std::free(payload); }
};

/// Of this thread on a CPU, so that other work on the machine counts less.
double threadSeconds() {
  std::timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

/// Codes and clears an operation of 64 blocks; seconds that it took.
double codeAll(Memory& memory, Rounding rounding, std::uint64_t operation, bool sampled) {
  const codec::Kernels& kernels = *codec::targets().front();
  const double start = threadSeconds();
  for (std::size_t b = 0; b < kBlocks; ++b) {
    const Range range{b * kBlock, kBlock};
    const codec::EncodeSpec spec{4, rounding, {operation, range.first}};
    const float* const values = memory.values.data() + range.first;
    benchmark::DoNotOptimize(kernels.encode(spec, codec::DType::F32, values, kBlock, memory.payload));
    if (sampled)
      benchmark::DoNotOptimize(
          sampleError(kernels, spec, codec::DType::F32, operation, range, reinterpret_cast<const std::byte*>(values)));
    kernels.clear(memory.cleared.data() + range.first, kBlock * sizeof(float));
  }
  return threadSeconds() - start;
}

/// With and without samples by turns, as the machine's speed changes over time. "percent": the median of the
/// differences of neighbours.
void pairs(benchmark::State& state, Rounding rounding) {
  Memory memory;
  std::vector<double> percent;
  std::uint64_t operation = 0;
  for (auto _ : state) {
    const bool first = operation % 2 == 0;
    const double one = codeAll(memory, rounding, operation, first);
    const double two = codeAll(memory, rounding, operation, !first);
    percent.push_back(first ? (one / two - 1) * 100 : (two / one - 1) * 100);
    ++operation;
  }
  std::sort(percent.begin(), percent.end());
  state.counters["percent"] = percent[percent.size() / 2];
}

BENCHMARK_CAPTURE(pairs, nearest, Rounding::Nearest)->Iterations(1000)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(pairs, stochastic, Rounding::Stochastic)->Iterations(1000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace cgx::collective

BENCHMARK_MAIN();
