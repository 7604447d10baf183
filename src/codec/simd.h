// The entry points of the fast codec, one set for each target that it is compiled for. Knows no vectors.
#pragma once

#include "cgx/codec.h"

namespace cgx::codec::simd {

#define CGX_SIMD_ENTRY_POINTS(target)                                                                              \
  namespace target {                                                                                               \
  Encoded encode(const EncodeSpec& spec, DType dtype, const void* in, std::size_t count, std::byte* out) noexcept; \
  void decode(const Payload& payload, DType dtype, std::size_t count, void* out) noexcept;                         \
  void decodeAdd(const Payload& payload, DType dtype, std::size_t count, float* sum) noexcept;                     \
  Encoded reduce(const EncodeSpec& spec, DType dtype, std::span<const Contribution> parts, std::size_t count,      \
                 std::byte* out, void* own) noexcept;                                                              \
  }

// The names that Highway gives its targets.
#if defined(__x86_64__)
CGX_SIMD_ENTRY_POINTS(N_SSE4)
CGX_SIMD_ENTRY_POINTS(N_AVX2)
CGX_SIMD_ENTRY_POINTS(N_AVX3)
#elif defined(__aarch64__)
CGX_SIMD_ENTRY_POINTS(N_NEON)
#endif
#undef CGX_SIMD_ENTRY_POINTS

/// Zero-fills past the cache.
void clear(void* memory, std::size_t bytes) noexcept;
std::size_t contentElements(DType dtype, const void* in, std::size_t count) noexcept;

}  // namespace cgx::codec::simd
