/* Halyard: transforms of FFTW distributed by MPI against the same transforms of one process.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <fftw3-mpi.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 1e-9

static double value_of(ptrdiff_t place, int part)
{
    return (double)((place * 7919 + part * 104729) % 1000) / 1000;
}

/* The largest difference between the rows of this rank and those of the whole, forth and back. */
static double compare(ptrdiff_t rows, ptrdiff_t columns)
{
    ptrdiff_t local_rows, first, i, length;
    fftw_complex *local, *whole;
    fftw_plan forth, back, alone;
    double worst = 0;

    length = fftw_mpi_local_size_2d(rows, columns, MPI_COMM_WORLD, &local_rows, &first);
    local  = fftw_alloc_complex(length);
    whole  = fftw_alloc_complex(rows * columns);
    forth  = fftw_mpi_plan_dft_2d(rows, columns, local, local, MPI_COMM_WORLD, FFTW_FORWARD,
                                  FFTW_ESTIMATE);
    back   = fftw_mpi_plan_dft_2d(rows, columns, local, local, MPI_COMM_WORLD, FFTW_BACKWARD,
                                  FFTW_ESTIMATE);
    alone  = fftw_plan_dft_2d((int)rows, (int)columns, whole, whole, FFTW_FORWARD, FFTW_ESTIMATE);
    for (i = 0; i < rows * columns; ++i) {
        whole[i][0] = value_of(i, 0);
        whole[i][1] = value_of(i, 1);
    }
    memcpy(local, whole + first * columns, local_rows * columns * sizeof(*local));
    fftw_execute(forth);
    fftw_execute(alone);
    for (i = 0; i < local_rows * columns; ++i) {
        worst = fmax(worst, fabs(local[i][0] - whole[first * columns + i][0]));
        worst = fmax(worst, fabs(local[i][1] - whole[first * columns + i][1]));
    }
    fftw_execute(back);
    for (i = 0; i < local_rows * columns; ++i) {
        const double scale = (double)(rows * columns);
        worst = fmax(worst, fabs(local[i][0] / scale - value_of(first * columns + i, 0)));
        worst = fmax(worst, fabs(local[i][1] / scale - value_of(first * columns + i, 1)));
    }
    fftw_destroy_plan(forth);
    fftw_destroy_plan(back);
    fftw_destroy_plan(alone);
    fftw_free(local);
    fftw_free(whole);
    return worst;
}

int main(int argc, char **argv)
{
    static const ptrdiff_t sizes[][2] = {{8, 8}, {64, 48}, {100, 37}, {512, 512}, {37, 1000}};
    double worst, most;
    int rank, failed = 0;
    size_t i;

    MPI_Init(&argc, &argv);
    fftw_mpi_init();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        worst = compare(sizes[i][0], sizes[i][1]);
        MPI_Allreduce(&worst, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        failed |= !(most < TOLERANCE * sizes[i][0] * sizes[i][1]);
        if (rank == 0) {
            printf("%td x %td: differs by at most %g\n", sizes[i][0], sizes[i][1], most);
        }
    }
    fftw_mpi_cleanup();
    MPI_Finalize();
    if (rank == 0) {
        printf(failed ? "FAILED\n" : "all transforms agree\n");
    }
    return failed;
}
