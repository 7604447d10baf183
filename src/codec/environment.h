// The floating-point environment that the numerics contract assumes: nearest even, denormals kept, no traps. The host
// program may run with another one; it gets its own back, sticky flags included.
#pragma once

#include <cstdint>

namespace cgx::codec {

/// Default environment from construction to destruction. The clobbers keep loads of elements after, and stores before.
class DefaultEnvironment {
 public:
  DefaultEnvironment() noexcept : saved_(read()) { write(kDefault); }
  ~DefaultEnvironment() { write(saved_); }
  DefaultEnvironment(const DefaultEnvironment&) = delete;
  DefaultEnvironment& operator=(const DefaultEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  using Word = std::uint32_t;
  static constexpr Word kDefault = 0x1F80;  // MXCSR: all exceptions masked, nearest even, no FTZ, no DAZ
  static Word read() noexcept {
    Word word = 0;
    asm volatile("stmxcsr %0" : "=m"(word) : : "memory");
    return word;
  }
  static void write(Word word) noexcept { asm volatile("ldmxcsr %0" : : "m"(word) : "memory"); }
#elif defined(__aarch64__)
  using Word = std::uint64_t;
  static constexpr Word kDefault = 0;  // FPCR: no traps, nearest even, no FZ, no default NaN
  static Word read() noexcept {
    Word word = 0;
    asm volatile("mrs %0, fpcr" : "=r"(word) : : "memory");
    return word;
  }
  static void write(Word word) noexcept { asm volatile("msr fpcr, %0" : : "r"(word) : "memory"); }
#else
#error "the codec knows the floating-point control register of x86-64 and AArch64"
#endif
  Word saved_;
};

}  // namespace cgx::codec
