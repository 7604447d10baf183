// What is wrong with this build of the reference plugin: one source, one compile definition (CGX_DEFECT) for each
// defect.
#pragma once

namespace cgx::broken {

enum class Defect {
  None,
  // both halves
  LeaksThreads,
  LeaksFds,
  LeaksMappings,
  MissingFunction,
  BadProperties,
  WritesOutsideBuffer,
  WritesUserSendBuffer,
  WrongTestSize,
  NeverCompletes,
  BlockingCall,
  CloseBlocks,
  TouchesStagingAfterDereg,
  PeerLossUnnoticed,
  ErrorNotSticky,
  // net
  BlocksInConnect,
  ReordersReceives,
  CorruptsData,
  // collnet
  ConnectNotUnanimous,
  ConnectNeverCompletes,
  ReduceSupportDiffers,
  WrongSum,
  DegradesDataNextToPadding,
  RanksDifferInRounding,  // different bits on one rank
  RanksDifferInOneBit,
  NotReproducible,
  TooFewRequests,
  RankCrashed,
  // not a defect: lossy, and clears the padding as it should
  Quantises,
};

#ifndef CGX_DEFECT
#define CGX_DEFECT None
#endif
inline constexpr Defect kDefect = Defect::CGX_DEFECT;
constexpr bool is(Defect defect) { return kDefect == defect; }

}  // namespace cgx::broken
