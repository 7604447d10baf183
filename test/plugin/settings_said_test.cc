// What the user set is said at start, once a process, with value and name.
#include <algorithm>
#include <cstdlib>

#include "test/plugin/net_driver.h"

namespace cgx::test {
namespace {

/// The lines that name settings when the library is loaded and initialised three times with `variables`.
std::vector<std::string> said(const std::vector<std::pair<const char*, const char*>>& variables) {
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  Captured::clear();
  {
    const Library library(CGX_LIBRARY);
    NetDriver<ncclNet_v10_t> net(library);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(net.init(), ncclSuccess);
      EXPECT_EQ(net.finalize(), ncclSuccess);
    }
  }
  std::vector<std::string> lines = Captured::take(NCCL_LOG_INFO);
  for (const auto& [name, value] : variables) unsetenv(name);
  std::erase_if(lines, [](const std::string& line) { return line.find("CGX_") == std::string::npos; });
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(SettingsSaid, AreThoseOfTheUserOnceWithValueAndName) {
  const auto lines = said({{"NCCL_NET_PLUGIN", "cgx"},
                           {"NCCL_COLLNET_ENABLE", "1"},
                           {"CGX_COMPRESSION_QUANTIZATION_BITS", "3"},
                           {"CGX_MIN_BYTES", "65536"},
                           {"CGX_STATS_FILE", "/tmp/%%s%%n%h"},
                           {"CGX_STREAMS", ""}});
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_NE(lines[0].find("CGX_BITS=3, set by CGX_COMPRESSION_QUANTIZATION_BITS"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("CGX_MIN_BYTES=64K"), std::string::npos) << lines[1];
  EXPECT_NE(lines[2].find("CGX_STATS_FILE=/tmp/%%s%%n%h"), std::string::npos) << lines[2];
}

TEST(SettingsSaid, AreNoneWhereOneOfThemIsBadAsNoneIsInForce) {
  EXPECT_EQ(said({{"NCCL_NET_PLUGIN", "cgx"}, {"NCCL_COLLNET_ENABLE", "1"}, {"CGX_BITS", "9"}, {"CGX_STREAMS", "2"}}),
            std::vector<std::string>());
}

}  // namespace
}  // namespace cgx::test
