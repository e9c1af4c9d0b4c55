// The instructions of a pickle that PyTorch's files are made of (protocol 2).
#pragma once

#include <cstdint>

namespace stoker::checkpoint::op {

inline constexpr uint8_t kProto = 0x80, kStop = '.', kMark = '(', kPop = '0';
inline constexpr uint8_t kNone = 'N', kNewTrue = 0x88, kNewFalse = 0x89;
inline constexpr uint8_t kBinInt = 'J', kBinInt1 = 'K', kBinInt2 = 'M', kLong1 = 0x8a;
inline constexpr uint8_t kBinFloat = 'G', kBinUnicode = 'X', kShortBinString = 'U';
inline constexpr uint8_t kEmptyTuple = ')', kTuple = 't';
inline constexpr uint8_t kTuple1 = 0x85, kTuple2 = 0x86, kTuple3 = 0x87;
inline constexpr uint8_t kEmptyList = ']', kAppend = 'a', kAppends = 'e';
inline constexpr uint8_t kEmptyDict = '}', kSetItem = 's', kSetItems = 'u';
inline constexpr uint8_t kBinGet = 'h', kLongBinGet = 'j', kBinPut = 'q', kLongBinPut = 'r';
inline constexpr uint8_t kGlobal = 'c', kBinPersId = 'Q', kReduce = 'R', kBuild = 'b';

}  // namespace stoker::checkpoint::op
