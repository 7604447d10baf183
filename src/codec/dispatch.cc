// Which targets this CPU can run, and the one that a setting names. Compiled for the baseline: it must run everywhere.
#include <array>
#include <cstddef>
#include <string>

#include "cgx/codec.h"
#include "codec/scalar.h"
#include "codec/simd.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#ifdef __AVX__
#error "the dispatcher decides whether AVX may be used, so it must not be compiled with it"
#endif

namespace cgx::codec {
namespace {

#define CGX_KERNELS(name, target)                                                                                 \
  Kernels {                                                                                                       \
    name, simd::target::encode, simd::target::decode, simd::target::decodeAdd, simd::target::reduce, simd::clear, \
        simd::contentElements                                                                                     \
  }
#if defined(__x86_64__)
constexpr Kernels kSse4 = CGX_KERNELS("sse4", N_SSE4);
constexpr Kernels kAvx2 = CGX_KERNELS("avx2", N_AVX2);
constexpr Kernels kAvx512 = CGX_KERNELS("avx512", N_AVX3);
#elif defined(__aarch64__)
constexpr Kernels kNeon = CGX_KERNELS("neon", N_NEON);
#endif
#undef CGX_KERNELS

#if defined(__x86_64__)
struct CpuFeatures {
  bool sse4 = false;
  bool avx2 = false;
  bool avx512 = false;
};

constexpr bool has(unsigned word, unsigned bits) { return (word & bits) == bits; }

/// CPUID says what the CPU has, XGETBV which registers the operating system saves on a context switch; without the
/// second, the upper halves of vectors would be lost at any time.
CpuFeatures detect() noexcept {
  CpuFeatures f;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return f;
  // All that the compiler may use in the regions of Highway's targets, not only what it does use.
  f.sse4 = has(c, bit_SSE3 | bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2);
  const bool avx = has(c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C);
  if (!f.sse4 || !avx) return f;
  unsigned low = 0;
  unsigned high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kYmm = 0x06;  // SSE and AVX state
  constexpr unsigned kZmm = 0xE6;  // and masks, upper halves, upper registers
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return f;
  f.avx2 = has(low, kYmm) && has(b, bit_AVX2 | bit_BMI | bit_BMI2);
  f.avx512 = f.avx2 && has(low, kZmm) && has(b, bit_AVX512F | bit_AVX512VL | bit_AVX512DQ | bit_AVX512BW);
  return f;
}
#endif

/// Best first.
struct Available {
  std::array<const Kernels*, 4> kernels{};
  std::size_t count = 0;
  constexpr void add(const Kernels& k) { kernels[count++] = &k; }

  Available() noexcept {
#if defined(__x86_64__)
    const CpuFeatures cpu = detect();
    if (cpu.avx512) add(kAvx512);
    if (cpu.avx2) add(kAvx2);
    if (cpu.sse4) add(kSse4);
#elif defined(__aarch64__)
    add(kNeon);
#endif
    add(kScalar);
  }
};

}  // namespace

std::span<const Kernels* const> targets() noexcept {
  static const Available kAvailable;
  return {kAvailable.kernels.data(), kAvailable.count};
}

Result<const Kernels*> select(std::string_view simd) {
  std::string names = "auto";
  for (const Kernels* target : targets()) {
    if (simd == "auto" || simd == target->name) return target;
    names.append(", ").append(target->name);
  }
  return Status::invalid("no SIMD target \"" + std::string(simd) + "\" on this CPU; there are: " + names);
}

}  // namespace cgx::codec
