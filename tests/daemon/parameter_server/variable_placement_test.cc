#include "daemon/parameter_server/variable_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::parameter_server {
namespace {

using ::testing::ElementsAre;

TEST(VariablePlacementTest, AlternatesBetweenServersInOrderOfVariables) {
  EXPECT_THAT(place_variables({100, 1, 100, 1, 7}, 2, config::VariablePlacement::kRoundRobin),
              ElementsAre(0, 1, 0, 1, 0));
}

TEST(VariablePlacementTest, PlacesOnServerWithFewestBytes) {
  EXPECT_THAT(place_variables({100, 1, 100, 1, 7}, 2, config::VariablePlacement::kBytes),
              ElementsAre(0, 1, 1, 0, 0));
}

TEST(VariablePlacementTest, PlacesAllOnSingleServer) {
  for (const config::VariablePlacement placement :
       {config::VariablePlacement::kRoundRobin, config::VariablePlacement::kBytes})
    EXPECT_THAT(place_variables({3, 2, 1}, 1, placement), ElementsAre(0, 0, 0));
}

}  // namespace
}  // namespace stoker::parameter_server
