// `cgx report`: the summary of known files, and files that somebody or something has spoilt.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <random>

#include "run_report/chart.h"
#include "run_report/run.h"
#include "run_report/timeline.h"
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
  c.nonFiniteTiles = 1;
  c.sampledTiles = 6;
  c.errorSquares = 0.25 * static_cast<double>(rank + 1);
  c.valueSquares = 16;
  c.encodeNs = encodeNs;
  c.reduceNs = 20'000'000;
  c.decodeNs = 5'000'000;
  c.wireNs = 300'000'000;
  c.sizes[2] = {4, 16'000, 16'256, 200'000};
  c.sizes[8] = {6, 1'984'000, 383'744, 6'000'000};
  s.records.push_back(record);
  statistics::add(s.sums, record);
  s.series.push_back({500, {}});
  statistics::Sums half = s.sums;
  for (std::uint64_t* value : {&half.operations, &half.inputBytes, &half.exactBytes, &half.wireBytes, &half.encodeNs,
                               &half.reduceNs, &half.decodeNs, &half.wireNs, &half.sampledTiles})
    *value /= 2;
  half.errorSquares /= 4;
  half.valueSquares /= 2;
  s.series.push_back({1500, half});
  s.series.push_back({2500, s.sums});
  return statistics::toJson(s);
}

TEST(RunReport, SumsUpTwoRanks) {
  std::vector<RunFile> files{parseRunFile("b", fileOf(12, 1, 40'000'000)).value(),
                             parseRunFile("a", fileOf(11, 0, 30'000'000)).value()};
  EXPECT_EQ(
      runText(gatherRun(files).value()),
      "processes   2, hosts 1, 2.5 s\n"
      "operations  20, of which 8 travelled exact because they are small\n"
      "wire        0.0008 GB instead of 0.004 GB in exact mode: ratio 5.00\n"
      "time        encode 0.070 s, reduce 0.040 s, decode 0.010 s, wire 0.600 s (over all threads and messages)\n"
      "tiles       768 coded, 6 zero, 16 raw in exact operations, 2 raw as they cannot be coded (2 with Inf or NaN), 0 "
      "sent whole\n"
      "error       NMSE 2.34e-02 of what ranks contribute, by 12 sampled tiles\n"
      "\n"
      "all-reduces\n"
      "     up to bytes   operations       bytes in     wire bytes      mean us\n"
      "            4096            8          32000          32512         50.0\n"
      "          262144           12        3968000         767488       1000.0\n"
      "\n"
      "  rank host                       operations     wire bytes    ratio     codec s      wire s      NMSE\n"
      "     0 node?[31m                          10         400000     5.00       0.055       0.300  1.56e-02\n"
      "     1 node?[31m                          10         400000     5.00       0.065       0.300  3.12e-02\n"
      "\n"
      "slowest     rank 1 on node?[31m: most time in the codec\n");
  files.push_back(files[0]);
  EXPECT_NE(gatherRun(files).status().text().find("b and b are of the same process"), std::string::npos);
  EXPECT_TRUE(gatherRun({}).status().failed());
}

TEST(RunReport, ReadsFilesFromBeforeTheErrorWasSampled) {
  std::string text = fileOf(1, 0, 1);
  for (const char* name : {"nonFiniteTiles", "sampledTiles", "errorSquares", "valueSquares"})
    for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name)) text.replace(at, 1, "x");
  const RunFile file = parseRunFile("f", text).value();
  EXPECT_EQ(file.sums.codedTiles, 384U);
  EXPECT_EQ(nmseText(file.sums), "-");
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
  EXPECT_NE(why("\"valueSquares\": 16,\n", "\"valueSquares\": -1,\n")
                .find("communicators[0].valueSquares is no number from 0 on"),
            std::string::npos);
  EXPECT_NE(why("\"host\": \"", "\"host\": 1\"").find("f.json: no JSON from byte "), std::string::npos);
  EXPECT_NE(why("\"pid\": 1", "\"pid\": 1e999").find("f.json: [json.exception.out_of_range"), std::string::npos);
  EXPECT_NE(parseRunFile("f", "").status().text().find("no JSON from byte "), std::string::npos);
  EXPECT_NE(parseRunFile("f", "[]").status().text().find("is no object"), std::string::npos);
  EXPECT_NE(parseRunFile("f", std::string(1 << 20, '[')).status().text().find("no JSON"), std::string::npos);
}

// test/golden/report.html is what a reader's eye has seen. Where a change is meant, look at the new page and copy it.
TEST(RunReport, ThePageIsTheGoldenOne) {
  const WholeRun run = gatherRun({parseRunFile("b", fileOf(12, 1, 40'000'000)).value(),
                                  parseRunFile("a", fileOf(11, 0, 30'000'000)).value()})
                           .value();
  const std::string page = runHtml(run);
  std::ifstream in(CGX_GOLDEN_PAGE, std::ios::binary);
  const std::string golden(std::istreambuf_iterator<char>(in), {});
  if (page == golden) return;
  std::ofstream("report.html") << page;
  FAIL() << "the page is not " CGX_GOLDEN_PAGE "; it is in report.html in the folder of the test";
}

// What a rank counted is spread over the spans, and nothing is lost: by series of random steps.
TEST(RunTimeline, SpansAddUpToTheWhole) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    WholeRun run;
    const std::size_t ranks = 1 + random() % 4;
    double wire = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      RunFile file;
      RunSample sample;
      for (std::size_t k = 1 + random() % 40; k > 0; --k) {
        sample.milliseconds += random() % 300;
        sample.sums.wireBytes += random() % 1000;
        sample.sums.exactBytes = 7 * sample.sums.wireBytes;
        file.series.push_back(sample);
      }
      run.milliseconds = std::max(run.milliseconds, sample.milliseconds + 1);
      wire += static_cast<double>(sample.sums.wireBytes);
      run.files.push_back(file);
    }
    const Timeline line = timelineOf(run, 1 + random() % 50);
    const double width = line.seconds / static_cast<double>(line.middles.size());
    double sum = 0;
    for (std::size_t k = 0; k < line.middles.size(); ++k) {
      sum += line.wireBytes[k] * width * static_cast<double>(ranks);
      if (!std::isnan(line.median[k])) {
        ASSERT_NEAR(line.lowest[k], 7, 1e-9);
        ASSERT_NEAR(line.highest[k], 7, 1e-9);
      }
    }
    ASSERT_NEAR(sum, wire, 1e-6 * wire + 1e-9);
  }
}

TEST(RunTimeline, TellsWhenTheRatioChanged) {
  WholeRun run;
  run.milliseconds = 4000;
  RunFile file;
  for (std::uint64_t k = 1; k <= 4; ++k) {
    RunSample sample{k * 1000, {}};
    sample.sums.wireBytes = 100 * std::min<std::uint64_t>(k, 3);  // nothing in the last second
    sample.sums.exactBytes = k < 2 ? 100 : k < 3 ? 900 : 1100;
    sample.sums.sampledTiles = k < 2 ? 3 : 4;
    sample.sums.errorSquares = k < 2 ? 1 : 2;
    sample.sums.valueSquares = k < 2 ? 100 : 110;
    file.series.push_back(sample);
  }
  run.files.push_back(file);
  const Timeline line = timelineOf(run, 10);
  ASSERT_EQ(line.median.size(), 4U);
  EXPECT_DOUBLE_EQ(line.median[0], 1);
  EXPECT_DOUBLE_EQ(line.median[1], 8);
  EXPECT_DOUBLE_EQ(line.median[2], 2);
  EXPECT_TRUE(std::isnan(line.median[3]));
  EXPECT_DOUBLE_EQ(line.nmse[0], 0.01);
  EXPECT_DOUBLE_EQ(line.nmse[1], 0.1);
  EXPECT_TRUE(std::isnan(line.nmse[2]));
  EXPECT_DOUBLE_EQ(line.middles[1], 1.5);
  EXPECT_DOUBLE_EQ(line.wireBytes[1], 100);
}

TEST(Chart, NumbersReadWell) {
  EXPECT_EQ(chart::secondsText(0.0000015), "1.5 us");
  EXPECT_EQ(chart::secondsText(0), "0 s");
  EXPECT_EQ(chart::secondsText(7200), "120 min");
  EXPECT_EQ(chart::secondsText(36000), "10 h");
  EXPECT_EQ(chart::bytesText(999), "999 B");
  EXPECT_EQ(chart::bytesText(1000), "1 kB");
  EXPECT_EQ(chart::bytesText(123'456'789), "123 MB");
  EXPECT_EQ(chart::plainText(7.376), "7.38");
  EXPECT_EQ(chart::plainText(100), "100");
  EXPECT_EQ(chart::plainText(0.0245), "0.025");
  EXPECT_EQ(chart::plainText(0.00001), "1e-05");
  EXPECT_EQ(chart::escaped("<a href='x' b=\"&\">\n\xff"), "&lt;a href=&#39;x&#39; b=&quot;&amp;&quot;&gt;??");
}

TEST(Chart, AxesCoverTheValuesWithFewTicks) {
  for (double highest = 1e-9; highest < 1e12; highest *= 1.37) {
    const chart::Axis axis = chart::axisTo(highest, chart::plainText);
    EXPECT_GE(axis.to, highest * 0.999);
    EXPECT_LE(axis.to, highest * 2.1);
    EXPECT_GE(axis.ticks.size(), 3U) << highest;
    EXPECT_LE(axis.ticks.size(), 7U) << highest;
    const chart::Axis decades = chart::decadesOf(highest / 3, highest * 1000, chart::plainText);
    EXPECT_LE(decades.from, highest / 3 * 1.001);
    EXPECT_GE(decades.to, highest * 999);
    EXPECT_LE(decades.ticks.size(), 7U);
  }
  EXPECT_EQ(chart::axisTo(0, chart::plainText).to, 1);
  EXPECT_EQ(chart::axisTo(std::nan(""), chart::plainText).to, 1);
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
      const Result<WholeRun> run = gatherRun({file.value()});
      ASSERT_TRUE(run.ok());
      runText(run.value());
      const std::string page = runHtml(run.value());
      ASSERT_TRUE(page.ends_with("</html>\n"));
      ASSERT_EQ(page.find("nan"), std::string::npos) << text;
    }
  }
  EXPECT_GT(refused, 10'000U);
}

}  // namespace
}  // namespace cgx::tool
