// `cgx report`: the summary of known files, and files that somebody or something has spoilt.
#include <gtest/gtest.h>

#include <random>

#include "run_report.h"
#include "statistics/format.h"

namespace cgx::tool {
namespace {

std::string fileOf(long pid, int rank, std::uint64_t encodeNs) {
  statistics::Snapshot s{.host = "node\x1b[31m",
                         .pid = pid,
                         .rank = rank,
                         .unixSeconds = 1,
                         .milliseconds = 2500,
                         .unlisted = 0,
                         .sums = {},
                         .records = {},
                         .series = {}};
  statistics::Record record{.id = 0, .rank = rank, .ranks = 2, .bits = 4, .open = false, .counters = {}};
  collective::Counters& c = record.counters;
  c.operations = 10;
  c.allReduces = {10, 2'000'000};
  c.inputBytes = 2'000'000;
  c.wireBytes = 400'000;
  c.smallOperations = 4;
  c.codedTiles = 384;
  c.zeroTiles = 3;
  c.rawTiles = 9;
  c.exactTiles = 8;
  c.encodeNs = encodeNs;
  c.reduceNs = 20'000'000;
  c.decodeNs = 5'000'000;
  c.wireNs = 300'000'000;
  c.sizes[2] = {4, 16'000, 16'256, 200'000};
  c.sizes[8] = {6, 1'984'000, 383'744, 6'000'000};
  s.records.push_back(record);
  return statistics::toJson(s);
}

TEST(RunReport, SumsUpTwoRanks) {
  std::vector<RunFile> files{parseRunFile("b", fileOf(12, 1, 40'000'000)).value(),
                             parseRunFile("a", fileOf(11, 0, 30'000'000)).value()};
  EXPECT_EQ(runReport(files).value(),
            "processes   2, hosts 1, 2.5 s\n"
            "operations  20, of which 8 travelled exact because they are small\n"
            "wire        0.0008 GB instead of 0.004 GB in exact mode: ratio 5.00\n"
            "time        encode 0.070 s, reduce 0.040 s, decode 0.010 s, wire 0.600 s (over all threads and messages)\n"
            "tiles       768 coded, 6 zero, 16 raw in exact operations, 2 raw as they cannot be coded, 0 sent whole\n"
            "\n"
            "all-reduces\n"
            "     up to bytes   operations       bytes in     wire bytes      mean us\n"
            "            4096            8          32000          32512         50.0\n"
            "          262144           12        3968000         767488       1000.0\n"
            "\n"
            "  rank host                       operations     wire bytes    ratio     codec s      wire s\n"
            "     0 node?[31m                          10         400000     5.00       0.055       0.300\n"
            "     1 node?[31m                          10         400000     5.00       0.065       0.300\n"
            "\n"
            "slowest     rank 1 on node?[31m: most time in the codec\n");
  files.push_back(files[0]);
  EXPECT_NE(runReport(files).status().text().find("b and b are of the same process"), std::string::npos);
  EXPECT_TRUE(runReport({}).status().failed());
}

TEST(RunReport, WhatIsWrongIsNamedWithItsPlace) {
  const std::string good = fileOf(1, 0, 1);
  const auto why = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return parseRunFile("f.json", text).status().text();
  };
  EXPECT_NE(why("cgx-statistics", "other").find("f.json: schema is not"), std::string::npos);
  EXPECT_NE(why("\"version\": 1", "\"version\": 2").find("f.json: version is not 1"), std::string::npos);
  EXPECT_NE(why("\"wireBytes\": 400000, \"messages\"", "\"wireBytes\": -1, \"messages\"")
                .find("f.json: communicators[0].wireBytes is no whole number"),
            std::string::npos);
  EXPECT_NE(why("\"ns\": 200000", "\"n\": 1").find("communicators[0].sizes[0].ns is missing"), std::string::npos);
  EXPECT_NE(why("\"host\": \"", "\"host\": 1\"").find("f.json: no JSON from byte "), std::string::npos);
  EXPECT_NE(why("\"pid\": 1", "\"pid\": 1e999").find("f.json: [json.exception.out_of_range"), std::string::npos);
  EXPECT_NE(parseRunFile("f", "").status().text().find("no JSON from byte "), std::string::npos);
  EXPECT_NE(parseRunFile("f", "[]").status().text().find("is no object"), std::string::npos);
  EXPECT_NE(parseRunFile("f", std::string(1 << 20, '[')).status().text().find("no JSON"), std::string::npos);
}

// Bytes changed, lost, doubled and cut off: an answer or a reason, never a crash; and what is taken can be reported.
TEST(RunReport, SpoiltFilesAreRefusedOrRead) {
  std::mt19937_64 random(7);
  const std::string good = fileOf(1, 0, 1);
  std::size_t refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = good;
    for (std::size_t edits = 1 + random() % 4; edits > 0 && !text.empty(); --edits) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 20);
          break;
        case 2:
          text.insert(at, text.substr(at, random() % 200));
          break;
        default:
          if (random() % 8 == 0) text.resize(at);
          text.insert(at, 1, "0123456789-.eE[]{},:\""[random() % 21]);
      }
    }
    const Result<RunFile> file = parseRunFile("f", text);
    if (!file.ok()) {
      ++refused;
      ASSERT_TRUE(file.status().text().starts_with("f: ")) << file.status().text();
    } else {
      ASSERT_TRUE(runReport({file.value()}).ok());
    }
  }
  EXPECT_GT(refused, 10'000U);
}

}  // namespace
}  // namespace cgx::tool
