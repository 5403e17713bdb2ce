// The version of thinwire, which CMake and Python read from here.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#define THINWIRE_VERSION_MAJOR 0
#define THINWIRE_VERSION_MINOR 1
#define THINWIRE_VERSION_PATCH 0
#define THINWIRE_VERSION "0.1.0"
