/* Halyard: what most unit tests include, for a compiler that is to read it once: see local.mk.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef HALYARD_TEST_PRECOMPILED_H
#define HALYARD_TEST_PRECOMPILED_H

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#endif
