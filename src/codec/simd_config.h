// Which targets Highway compiles the fast codec for. Included before any Highway header. Only headers of Highway are
// used: no dispatch of its own, no library.
#pragma once

// NEON is the baseline of AArch64; on x86-64 the baseline itself is left to the reference (scalar.cc).
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_DISABLE_PCLMUL_AES  // not used, so not required of the CPU
// Highway's debug checks would call its library.
#define HWY_IS_DEBUG_BUILD 0
