/* The API version that FoundationDB's newest stable release has; the library offers 510 to 800. */
#ifndef FDB_C_APIVERSION_G_H
#define FDB_C_APIVERSION_G_H

#define FDB_LATEST_API_VERSION 730
#define FDB_LATEST_BINDINGS_API_VERSION 730

#endif
