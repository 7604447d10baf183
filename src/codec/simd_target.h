// Included at the top of each source file of the fast codec, once for each target: makes CGX_SIMD_TARGET true where
// there is code to make.
#undef CGX_SIMD_TARGET
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#define CGX_SIMD_TARGET 0
#else
#define CGX_SIMD_TARGET 1
#endif
