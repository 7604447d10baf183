// How far a lossy all-reduce may be from the exact sum, and the check of nccl-tests' results against it. The formula is
// the codec's (docs/codec.md) with every step taken at its largest, 1.5 times the ideal one, over the elements that can
// share a bucket with this one: so it holds wherever NCCL cuts the message, and however many ranks share a node. The
// numbers are plain C++ that a host compiler can test; the rest needs nvcc.
#pragma once

#include <cmath>
#include <cstdint>

#include "cgx_options.h"

#ifdef __CUDACC__
#define CGX_BOTH __host__ __device__
#else
#define CGX_BOTH
#endif

namespace cgx {

constexpr int64_t kBlock = 32;  // elements of a bucket; one thread takes one block

/// What rounding to the type costs, relative to the value; the smallest absolute error; the largest finite value.
struct Precision {
  double relative;
  double absolute;
  double largest;
};

constexpr Precision kFloat = {1.0 / (1 << 24), 1e-45, 3.4028234663852886e38};
constexpr Precision kHalf = {1.0 / (1 << 11), 1.0 / (1 << 25), 65504};
constexpr Precision kBfloat16 = {1.0 / (1 << 8), 1e-40, 3.3895313892515355e38};

struct Range {
  double positive;  // largest element, or 0
  double negative;  // minus the smallest, or 0
};

/// Of a piece of `count` elements, for each element or each block of it.
struct Sums {
  int64_t count;
  double* sum;        // elements
  double* magnitude;  // elements: sum of |x|
  double* error;      // blocks: of the first quantisation, all ranks together
  Range* range;       // blocks: of one rank's part, then of the sum
};

CGX_BOTH inline int64_t blocksOf(int64_t count) { return (count + kBlock - 1) / kBlock; }
CGX_BOTH inline double larger(double a, double b) { return a > b ? a : b; }

/// Adds block `b` of one rank's part, times `scale` (of avg and mulsum).
template <class T>
CGX_BOTH void addBlock(const Sums& s, int64_t b, const T* x, double scale) {
  Range range = {0, 0};
  for (int64_t i = b * kBlock; i < (b + 1) * kBlock && i < s.count; ++i) {
    const double value = static_cast<double>(static_cast<float>(x[i])) * scale;
    s.sum[i] += value;
    s.magnitude[i] += fabs(value);
    range.positive = larger(range.positive, value);
    range.negative = larger(range.negative, -value);
  }
  s.range[b] = range;
}

/// Largest error of quantising once an element of block `b`: its bucket may reach into the blocks beside it.
CGX_BOTH inline double quantisationError(const Sums& s, int64_t b, int bits, bool nearest) {
  if (bits == kExactBits) return 0;
  Range wide = {0, 0};
  for (int64_t k = b - 1; k <= b + 1; ++k) {
    if (k < 0 || k >= blocksOf(s.count)) continue;
    wide.positive = larger(wide.positive, s.range[k].positive);
    wide.negative = larger(wide.negative, s.range[k].negative);
  }
  const double longer = larger(wide.positive, wide.negative);
  const double shorter = wide.positive + wide.negative - longer;
  const double slack = 1 + 1.0 / 4096;  // fp32 roundings of levels and steps, granularity of the noise
  if (bits == 1) return (nearest ? 0.75 : 2.5) * longer * slack;
  const double levels = static_cast<double>(1 << (bits - 1));
  const double step = 1.5 * larger(longer / levels, shorter / (levels - 1));
  return (nearest ? step / 2 : step) * slack;
}

/// What every rounding to the type may do, in whatever order and grouping NCCL and the owners add: a ring rounds at
/// each of `ranks` hops, avg rounds its factor and its products.
CGX_BOTH inline double roundingError(const Precision& p, int ranks, double magnitude) {
  return (ranks + 2) * (magnitude * p.relative * 1.01 + p.absolute);
}

/// Of the sum that the owner encodes: exact sum, give or take what came before.
CGX_BOTH inline void rangeOfSums(const Sums& s, int64_t b, const Precision& p, int ranks) {
  Range range = {0, 0};
  for (int64_t i = b * kBlock; i < (b + 1) * kBlock && i < s.count; ++i) {
    const double error = s.error[b] + roundingError(p, ranks, s.magnitude[i] + s.error[b]);
    range.positive = larger(range.positive, s.sum[i] + error);
    range.negative = larger(range.negative, error - s.sum[i]);
  }
  s.range[b] = range;
}

/// How far element i of block `b` may be from s.sum[i]; infinite where a partial sum may overflow.
CGX_BOTH inline double boundOf(const Sums& s, int64_t b, int64_t i, const Precision& p, int ranks, double second) {
  const double first = s.error[b] + roundingError(p, ranks, s.magnitude[i] + s.error[b]);
  const double bound = first + second + roundingError(p, 0, s.magnitude[i] + first + second);
  return s.magnitude[i] + bound < p.largest ? bound : HUGE_VAL;
}

}  // namespace cgx

#ifdef __CUDACC__

// nccl-tests: the check itself, by the seed that its input was last made with.
extern struct testColl allReduceTest __attribute__((weak));

namespace cgx {

inline uint64_t& lastSeed() {
  static thread_local uint64_t seed = 0;
  return seed;
}

inline bool precisionOf(ncclDataType_t type, Precision* out) {
  if (type == ncclFloat32) {
    *out = kFloat;
    return true;
  }
  if (type == ncclFloat16) {
    *out = kHalf;
    return true;
  }
#if HAVE_BF16
  if (type == ncclBfloat16) {
    *out = kBfloat16;
    return true;
  }
#endif
  return false;
}

/// Whether this program's sums of this type are judged by the bound: only the all-reduce test, only what is compressed.
inline bool boundApplies(ncclDataType_t type, ncclRedOp_t op) {
  Precision unused;
  const bool asked = options().bits != 0 || options().gradients;
  const bool sums = op == ncclSum || op == ncclAvg || op >= ncclNumOps;
  return asked && sums && &allReduceTest != nullptr && precisionOf(type, &unused);
}

__device__ inline int64_t threadIndex() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

template <class T>
__global__ void addKernel(Sums s, const T* x, double scale) {
  if (threadIndex() < blocksOf(s.count)) addBlock(s, threadIndex(), x, scale);
}
static __global__ void firstErrorKernel(Sums s, int bits, bool nearest) {
  const int64_t b = threadIndex();
  if (b < blocksOf(s.count)) s.error[b] += quantisationError(s, b, bits, nearest);
}
static __global__ void rangeKernel(Sums s, Precision p, int ranks) {
  if (threadIndex() < blocksOf(s.count)) rangeOfSums(s, threadIndex(), p, ranks);
}
/// Counts the elements of [first, end) of the piece that are out of bounds.
template <class T>
__global__ void compareKernel(Sums s, const T* result, int64_t first, int64_t end, Precision p, int ranks, int bits,
                              bool nearest, unsigned long long* wrong) {
  const int64_t b = threadIndex();
  if (b >= blocksOf(s.count)) return;
  const double second = quantisationError(s, b, bits, nearest);
  for (int64_t i = b * kBlock; i < (b + 1) * kBlock && i < s.count; ++i) {
    if (i < first || i >= end) continue;
    const double off = fabs(static_cast<double>(static_cast<float>(result[i])) - s.sum[i]);
    if (!(off <= boundOf(s, b, i, p, ranks, second))) atomicAdd(wrong, 1ull);
  }
}

/// One cudaMalloc for all that a check needs.
class Scratch {
 public:
  ~Scratch() { cudaFree(memory_); }
  cudaError_t reserve(int64_t count) {
    const size_t blocks = static_cast<size_t>(blocksOf(count));
    const size_t n = static_cast<size_t>(count);
    const cudaError_t made =
        cudaMalloc(&memory_, 2 * n * sizeof(double) + blocks * (sizeof(double) + sizeof(Range)) + 4 * n + 128);
    if (made != cudaSuccess) return made;
    sums.count = count;
    sums.sum = static_cast<double*>(memory_);
    sums.magnitude = sums.sum + n;
    sums.error = sums.magnitude + n;
    sums.range = reinterpret_cast<Range*>(sums.error + blocks);
    wrong = reinterpret_cast<unsigned long long*>(sums.range + blocks);
    const uintptr_t after = reinterpret_cast<uintptr_t>(wrong + 1);
    input = reinterpret_cast<void*>((after + 63) / 64 * 64);
    return cudaMemset(wrong, 0, sizeof *wrong);
  }
  cudaError_t clear(int64_t count) {
    sums.count = count;
    cudaError_t done = cudaMemset(sums.sum, 0, static_cast<size_t>(count) * sizeof(double));
    if (done == cudaSuccess) done = cudaMemset(sums.magnitude, 0, static_cast<size_t>(count) * sizeof(double));
    if (done == cudaSuccess) done = cudaMemset(sums.error, 0, static_cast<size_t>(blocksOf(count)) * sizeof(double));
    return done;
  }

  Sums sums = {};
  unsigned long long* wrong = nullptr;
  void* input = nullptr;

 private:
  void* memory_ = nullptr;
};

inline double scaleOf(ncclRedOp_t op, int rank, int ranks) {
  if (op == ncclAvg) return 1.0 / ranks;
  return op >= ncclNumOps ? static_cast<double>(ncclVerifiablePremulScalar<float>(rank)) : 1.0;
}

template <class T>
testResult_t checkPieces(const T* result, int64_t count, ncclDataType_t type, ncclRedOp_t op, int ranks, Precision p,
                         int64_t* wrong) {
  constexpr int64_t kPiece = 1 << 22;
  constexpr int64_t kBeside = 2 * kBlock;  // what the bound of a piece's ends depends on
  const int bits = options().bits == 0 ? kExactBits : options().bits;
  const bool nearest = options().nearest;
  Scratch scratch;
  CUDACHECK(scratch.reserve(std::min(count, kPiece + 2 * kBeside)));
  for (int64_t first = 0; first < count; first += kPiece) {
    const int64_t from = std::max<int64_t>(0, first - kBeside);
    const int64_t end = std::min(count, first + kPiece);
    const int64_t elements = std::min(count, end + kBeside) - from;
    const unsigned grid = static_cast<unsigned>((blocksOf(elements) + 127) / 128);
    CUDACHECK(scratch.clear(elements));
    for (int rank = 0; rank < ranks; ++rank) {
      const uint64_t seed = lastSeed();
      TESTCHECK(InitData(scratch.input, elements, from, type, op, seed, ranks, rank));
      CUDACHECK(cudaDeviceSynchronize());  // InitData's stream need not be ours
      addKernel<T><<<grid, 128>>>(scratch.sums, static_cast<const T*>(scratch.input), scaleOf(op, rank, ranks));
      firstErrorKernel<<<grid, 128>>>(scratch.sums, bits, nearest);
      CUDACHECK(cudaDeviceSynchronize());
    }
    rangeKernel<<<grid, 128>>>(scratch.sums, p, ranks);
    compareKernel<T>
        <<<grid, 128>>>(scratch.sums, result + from, first - from, end - from, p, ranks, bits, nearest, scratch.wrong);
    CUDACHECK(cudaGetLastError());
  }
  unsigned long long found = 0;
  CUDACHECK(cudaMemcpy(&found, scratch.wrong, sizeof found, cudaMemcpyDeviceToHost));
  *wrong = static_cast<int64_t>(found);
  return testSuccess;
}

/// Elements of `result` that are farther from the exact sum of all ranks' input than the bound allows.
inline testResult_t checkAllReduce(const void* result, size_t count, ncclDataType_t type, ncclRedOp_t op, int ranks,
                                   int64_t* wrong) {
  Precision p;
  if (!precisionOf(type, &p)) return testInternalError;
  const int64_t n = static_cast<int64_t>(count);
  *wrong = 0;
  if (n == 0) return testSuccess;
  if (type == ncclFloat32) return checkPieces(static_cast<const float*>(result), n, type, op, ranks, p, wrong);
#if HAVE_BF16
  if (type == ncclBfloat16) return checkPieces(static_cast<const __nv_bfloat16*>(result), n, type, op, ranks, p, wrong);
#endif
  return checkPieces(static_cast<const half*>(result), n, type, op, ranks, p, wrong);
}

}  // namespace cgx

#endif  // __CUDACC__
