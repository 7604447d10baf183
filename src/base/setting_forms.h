// The forms that a setting's text can take: each reads strictly (whole text, no blanks, in range), shows, and says what
// it accepts. Knows no setting by name.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace cgx::forms {

/// Digits only: from_chars alone would take a minus sign and stop at trailing text.
template <class T>
bool readNumber(std::string_view text, T& out) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return false;
  const char* const end = text.data() + text.size();
  std::from_chars_result result{};
  if constexpr (std::floating_point<T>) {
    result = std::from_chars(text.data(), end, out, std::chars_format::fixed);
  } else {
    result = std::from_chars(text.data(), end, out);
  }
  return result.ec == std::errc() && result.ptr == end;
}

/// Independent of the locale, unlike printf: the library lives in other people's processes.
template <class T>
std::string showNumber(T value) {
  std::array<char, 32> text{};
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), result.ptr};
}

/// "64K", exactly or not at all: sizes are shown as a user would write them.
inline std::string showBytes(std::size_t bytes) {
  for (const auto& [shift, unit] : {std::pair{30, 'G'}, std::pair{20, 'M'}, std::pair{10, 'K'}}) {
    const std::size_t one = std::size_t{1} << shift;
    if (bytes >= one && bytes % one == 0) return showNumber(bytes / one) + unit;
  }
  return showNumber(bytes);
}

/// low..high, one value beside the range, and a word for zero ("auto", "off").
template <class T>
struct Number {
  T low{};
  T high{};
  const char* zeroWord = nullptr;  // accepted for 0, as is "0"; nullptr: 0 must be in the range
  T also{};                        // accepted beside the range; 0: none
  const char* unit = "";

  bool read(std::string_view text, T& out) const { return readZero(text, out) || (readNumber(text, out) && fits(out)); }
  std::string show(T value) const {
    return value == T{} && zeroWord != nullptr ? std::string(zeroWord) : showNumber(value);
  }
  std::string accepts() const {
    std::string text = zeroWord != nullptr ? std::string(zeroWord) + ", " : std::string();
    text += showNumber(low) + ".." + showNumber(high) + unit;
    return also != T{} ? text + ", " + showNumber(also) : text;
  }
  bool fits(T value) const { return (value >= low && value <= high) || (also != T{} && value == also); }
  bool readZero(std::string_view text, T& out) const {
    if (zeroWord == nullptr || (text != zeroWord && text != "0")) return false;
    out = T{};
    return true;
  }
};

/// A count of bytes, with K, M or G for the powers of 1024.
struct Bytes {
  std::size_t low = 0;
  std::size_t high = 0;
  const char* zeroWord = nullptr;

  bool read(std::string_view text, std::size_t& out) const {
    const Number<std::size_t> plain{.low = low, .high = high, .zeroWord = zeroWord};
    if (plain.readZero(text, out)) return true;
    int shift = 0;
    switch (text.empty() ? '\0' : text.back()) {
      case 'k':
      case 'K':
        shift = 10;
        break;
      case 'm':
      case 'M':
        shift = 20;
        break;
      case 'g':
      case 'G':
        shift = 30;
        break;
      default:
        break;
    }
    if (shift != 0) text.remove_suffix(1);
    if (!readNumber(text, out) || out > (SIZE_MAX >> shift)) return false;
    out <<= shift;
    return plain.fits(out);
  }
  std::string show(std::size_t value) const {
    return value == 0 && zeroWord != nullptr ? std::string(zeroWord) : showBytes(value);
  }
  std::string accepts() const {
    const std::string zero = zeroWord != nullptr ? std::string(zeroWord) + ", " : std::string();
    return zero + showBytes(low) + ".." + showBytes(high) + " bytes, K M G allowed";
  }
};

/// What a setting with no text of its own shows.
inline constexpr const char* kUnset = "unset";

/// One word of a list, and what it stands for: an enumerator, a bool, or (in a Settings string) itself.
template <class T>
struct Word {
  const char* text;
  T value;
};
template <class T>
Word(const char*, T) -> Word<T>;
template <class T, std::size_t N>
struct Choice {
  std::array<Word<T>, N> words;

  template <class Out>
  bool read(std::string_view text, Out& out) const {
    for (const Word<T>& word : words) {
      if (text != word.text) continue;
      out = word.value;
      return true;
    }
    return false;
  }
  template <class In>
  std::string show(const In& value) const {
    for (const Word<T>& word : words) {
      if (value == word.value) return word.text;
    }
    return kUnset;
  }
  std::string accepts() const {
    std::string text;
    for (const Word<T>& word : words) text += (text.empty() ? "" : ", ") + std::string(word.text);
    return text;
  }
};
template <class T, class... More>
constexpr Choice<T, 1 + sizeof...(More)> choice(Word<T> first, More... more) {
  return {{first, more...}};
}
template <class... Texts>
constexpr Choice<const char*, sizeof...(Texts)> words(Texts... texts) {
  return {{Word<const char*>{texts, texts}...}};
}

/// NCCL's interface list: an optional ^ (all but) or = (exact names), then names or prefixes, each with an optional
/// :port.
struct Interfaces {
  bool read(std::string_view text, std::string& out) const;
  std::string show(const std::string& value) const { return value.empty() ? kUnset : value; }
  std::string accepts() const { return "[^ or =]name[:port],... as in NCCL_SOCKET_IFNAME"; }
};

/// An absolute path (ranks may run in different folders) in which % stands before h, p, r or another %.
struct FilePattern {
  bool read(std::string_view text, std::string& out) const;
  std::string show(const std::string& value) const { return value.empty() ? kUnset : value; }
  std::string accepts() const { return "/path/to/a/file, %h %p %r %% allowed"; }
};

/// "first-last", both included.
struct PortRange {
  bool read(std::string_view text, std::string& out) const;
  std::string show(const std::string& value) const { return value.empty() ? kUnset : value; }
  std::string accepts() const { return "first-last, ports 1..65535"; }
};

}  // namespace cgx::forms
