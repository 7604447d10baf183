// The golden numbers of NCCL's ABI once more as a table (plugin/*.h pins them at compile time), so that a wrong
// restatement and a wrong pin would have to agree.
#include <gtest/gtest.h>

#include "plugin/collnet_api.h"
#include "plugin/env_api.h"
#include "plugin/net_api.h"
#include "plugin/tuner_api.h"

namespace {

template <class Props>
void expectProps(std::size_t size, std::size_t speed, std::size_t latency, std::size_t maxComms, std::size_t maxRecvs) {
  EXPECT_EQ(sizeof(Props), size);
  EXPECT_EQ(offsetof(Props, ptrSupport), 24U);
  EXPECT_EQ(offsetof(Props, speed), speed);
  EXPECT_EQ(offsetof(Props, latency), latency);
  EXPECT_EQ(offsetof(Props, maxComms), maxComms);
  EXPECT_EQ(offsetof(Props, maxRecvs), maxRecvs);
}

TEST(Layout, PropertiesHaveNcclsOffsets) {
  expectProps<ncclNetProperties_v6_t>(48, 28, 36, 40, 44);
  expectProps<ncclNetProperties_v7_t>(56, 28, 36, 40, 44);
  expectProps<ncclNetProperties_v8_t>(64, 32, 40, 44, 48);
  expectProps<ncclNetProperties_v9_t>(104, 36, 44, 48, 52);
  expectProps<ncclNetProperties_v10_t>(104, 36, 44, 48, 52);
  expectProps<ncclNetProperties_v11_t>(112, 36, 44, 48, 52);
  expectProps<ncclNetProperties_v12_t>(128, 36, 44, 48, 52);
}

TEST(Layout, TablesHaveNcclsNumberOfSlots) {
  const std::size_t net[] = {sizeof(ncclNet_v6_t),  sizeof(ncclNet_v7_t),  sizeof(ncclNet_v8_t), sizeof(ncclNet_v9_t),
                             sizeof(ncclNet_v10_t), sizeof(ncclNet_v11_t), sizeof(ncclNet_v12_t)};
  const std::size_t netSlots[] = {17, 19, 19, 20, 20, 22, 22};
  const std::size_t coll[] = {sizeof(ncclCollNet_v6_t), sizeof(ncclCollNet_v7_t),  sizeof(ncclCollNet_v8_t),
                              sizeof(ncclCollNet_v9_t), sizeof(ncclCollNet_v10_t), sizeof(ncclCollNet_v11_t),
                              sizeof(ncclCollNet_v12_t)};
  EXPECT_EQ(sizeof(ncclEnv_v1_t), 4 * sizeof(void*));
  EXPECT_EQ(sizeof(ncclEnv_v2_t), 4 * sizeof(void*));
  const std::size_t collSlots[] = {15, 15, 17, 18, 18, 19, 19};
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(net[i], netSlots[i] * sizeof(void*)) << "net v" << i + 6;
    EXPECT_EQ(coll[i], collSlots[i] * sizeof(void*)) << "collnet v" << i + 6;
  }
  const std::size_t tuner[] = {sizeof(ncclTuner_v2_t), sizeof(ncclTuner_v3_t), sizeof(ncclTuner_v4_t),
                               sizeof(ncclTuner_v5_t), sizeof(ncclTuner_v6_t)};
  const std::size_t tunerSlots[] = {4, 4, 4, 4, 5};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(tuner[i], tunerSlots[i] * sizeof(void*)) << "tuner v" << i + 2;
}

// 7 algorithms, 3 protocols, 3 kinds of link, 4 generations, 3 numbers of nodes; doubles.
TEST(Layout, TheTunersConstantsHaveNcclsOffsets) {
  EXPECT_EQ(sizeof(ncclTunerConstants_v5_t), (7 * 3 + 3 * 7 * 3 + 5 * 4 * 3) * sizeof(double));
  EXPECT_EQ(offsetof(ncclTunerConstants_v5_t, hwLatencies), 7 * 3 * sizeof(double));
  EXPECT_EQ(offsetof(ncclTunerConstants_v5_t, perChMaxTreeBws), (7 * 3 + 3 * 7 * 3 + 3 * 4 * 3) * sizeof(double));
  EXPECT_EQ(sizeof(ncclNvlDomainInfo_v5_t), 3 * sizeof(int));
}

}  // namespace
