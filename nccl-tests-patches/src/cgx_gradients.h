// Data that looks like gradients: layers whose scales differ by orders of magnitude, rows within a layer, a heavy tail,
// exact zeros, a few layers of which most rows are zero, and ranks that agree in part. Element, rank and seed alone
// decide a value (a counter-based generator), so any piece can be made again anywhere.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cgx_bound.h"  // CGX_BOTH; whose sums are judged by the bound

namespace cgx {

constexpr int64_t kLayer = 48 * 1024;  // elements
constexpr int64_t kRow = 768;          // elements

/// splitmix64's finaliser.
CGX_BOTH inline uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// Sum of four uniform numbers, scaled to variance 1: close to normal, no libm.
CGX_BOTH inline float bell(uint64_t h) {
  const int sum = static_cast<int>((h & 0xFFFF) + ((h >> 16) & 0xFFFF) + ((h >> 32) & 0xFFFF) + (h >> 48)) - 2 * 65535;
  return static_cast<float>(sum) * (1.7320508f / 65536.0f);
}

CGX_BOTH inline float powerOfTwoBelowOne(unsigned exponent) { return 1.0f / static_cast<float>(1u << exponent); }

CGX_BOTH inline float gradient(uint64_t seed, int rank, int64_t element) {
  const uint64_t position = static_cast<uint64_t>(element);
  const uint64_t layer = mix(seed ^ mix(position / kLayer));
  const uint64_t row = mix(layer ^ (position / kRow));
  const uint64_t shared = mix(seed ^ mix(position));
  const uint64_t own = mix(shared ^ mix(static_cast<uint64_t>(rank) + 1));
  const bool embedding = (layer & 7) == 0;
  if (embedding && (row & 7) != 0) return 0;
  if ((own & 63) == 0) return 0;
  float value = 0.5f * bell(shared) + bell(mix(own));
  if (((own >> 8) & 255) == 0) value *= 8;  // the tail
  return value * powerOfTwoBelowOne(4 + static_cast<unsigned>((layer >> 8) % 14)) *
         powerOfTwoBelowOne(static_cast<unsigned>((row >> 8) % 3));
}

}  // namespace cgx

#ifdef __CUDACC__

namespace cgx {

template <class T>
__global__ void gradientKernel(T* out, int64_t count, int64_t offset, uint64_t seed, int rank) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    out[i] = T(gradient(seed, rank, offset + i));
}

/// True: `data` is filled (or *result says why not); false: this data stays nccl-tests' own.
inline bool fillGradients(void* data, size_t count, size_t offset, ncclDataType_t type, ncclRedOp_t op, uint64_t seed,
                          int rank, testResult_t* result) {
  if (!options().gradients || !boundApplies(type, op)) return false;  // its expected values are nccl-tests' own
  constexpr unsigned kGrid = 1024;
  const int64_t n = static_cast<int64_t>(count);
  const int64_t first = static_cast<int64_t>(offset);
  if (type == ncclFloat32)
    gradientKernel<<<kGrid, 256, 0, cudaStreamDefault>>>(static_cast<float*>(data), n, first, seed, rank);
  else if (type == ncclFloat16)
    gradientKernel<<<kGrid, 256, 0, cudaStreamDefault>>>(static_cast<half*>(data), n, first, seed, rank);
#if HAVE_BF16
  else if (type == ncclBfloat16)
    gradientKernel<<<kGrid, 256, 0, cudaStreamDefault>>>(static_cast<__nv_bfloat16*>(data), n, first, seed, rank);
#endif
  else
    return false;
  const cudaError_t launched = cudaGetLastError();
  *result = launched == cudaSuccess ? testSuccess : testCudaError;
  if (launched != cudaSuccess) fprintf(stderr, "gradient data: %s\n", cudaGetErrorString(launched));
  return true;
}

}  // namespace cgx

#endif  // __CUDACC__
